//! Support for the suites: a control plane, a host on it, a user who applies and edits objects, and the audit log.
//!
//! Expectations about the product's behaviour belong in the suites, not here.

#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::unwrap_in_result,
    reason = "a failed expectation of a test is a panic"
)]

pub mod admin;
pub mod astray;
pub mod audit;
pub mod control_plane;
pub mod handmade;
pub mod harmless;
pub mod helm;
pub mod host;
pub mod manifest;
pub mod owned;
pub mod pages;
pub mod pem;
pub mod pod;
pub mod process;
pub mod registry;
pub mod tenure;
pub mod trial;
pub mod user;
pub mod wait;

pub use audit::{Audit, Request, Write};
pub use control_plane::ControlPlane;
pub use host::{Host, HostOptions};
pub use trial::Trial;
pub use user::User;
pub use wait::{eventually, eventually_for};
