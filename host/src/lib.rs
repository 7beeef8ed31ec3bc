#![doc = include_str!("../ARCHITECTURE.md")]

pub mod streams;

pub mod failure;

pub mod config;

mod diff;
mod document;
mod generate;
mod shrink;

pub mod admin;
pub mod build;
pub mod dev;
pub mod documents;
pub mod fleet;
pub mod inspect;
pub mod manifests;
pub mod new;
pub mod plugin_file;
pub mod recordings;
pub mod registry;
pub mod render;
pub mod run;
pub mod survey;
pub mod testing;

pub mod runtime;

pub mod command;
