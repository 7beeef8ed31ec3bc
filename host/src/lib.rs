#![doc = include_str!("../ARCHITECTURE.md")]

pub mod clock;
pub mod model;
pub mod yaml;

pub mod config;
pub mod metrics;

pub mod plan;
pub mod policy;
pub mod schema;

pub mod apply;
pub mod cluster;
pub mod plugin;
pub mod source;

pub mod reconcile;

pub mod controller;
pub mod lease;
pub mod plugins;

pub mod admin;
pub mod build;
pub mod dev;
pub mod inspect;
pub mod manifests;
pub mod registry;
pub mod render;
pub mod run;
pub mod survey;

pub mod command;
