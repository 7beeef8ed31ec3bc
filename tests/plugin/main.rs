//! The product and real guests without a cluster: commands, files, registries, and their exit codes.

#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

mod admin;
mod answers;
mod artifacts;
mod bad_input;
mod building;
mod compiling;
mod config_schema;
mod cosign;
mod etcd;
mod files;
mod kubeconfigs;
mod memory;
mod numbers;
mod projects;
mod registries;
mod release;
mod setup;
mod testing;
mod wasip2;
