//! The product and real guests without a cluster: what it says of files, and with which exit code.

#![expect(
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

mod answers;
mod artifacts;
mod building;
mod compiling;
mod cosign;
mod files;
mod kubeconfigs;
mod readme;
mod registries;
