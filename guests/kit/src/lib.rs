//! Blocks that plugins share; the README follows.
//!
#![doc = include_str!("../README.md")]

pub mod budget;
pub mod claim;
pub mod cron;
pub mod image;
pub mod job;
pub mod labels;
pub mod objects;
pub mod partial;
pub mod placement;
pub mod pod;
pub mod prelude;
pub mod quantity;
pub mod references;
pub mod rollout;
pub mod tenants;
pub mod workload;
