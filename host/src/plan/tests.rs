//! Tests of the plan: tables, and properties over an API server in memory.
#![expect(
    clippy::needless_raw_string_hashes,
    reason = "expect-test writes its expectations like this"
)]

mod adoption;
pub(crate) mod build;
mod children;
mod crds;
mod fields;
mod finalize;
mod properties;
mod readiness;
pub(crate) mod server;
mod statuses;
