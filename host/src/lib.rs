#![doc = include_str!("../ARCHITECTURE.md")]

pub mod config;

pub mod dev;
pub mod documents;
pub mod fleet;
pub mod record;
pub mod status;
mod table;

pub mod command;
