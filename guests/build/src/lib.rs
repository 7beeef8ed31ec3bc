//! Build guest crates into components.
//!
//! A guest is an ordinary crate; what makes it a plugin is this: it is compiled for
//! `wasm32-unknown-unknown`, which has no WASI import at all, and the module is wrapped into a
//! component. [`Toolchain::find`] decides which compiler of the machine does the first step,
//! [`build`] does both.
//!
//! Whether something has changed since the last build is cargo's business, and a component whose
//! bytes stay the same is not written again. This crate neither runs components nor knows what
//! they mean, and it prints nothing: progress goes to the caller, line by line.

mod build;
mod component;
mod machine;
mod toolchain;

pub use build::{Component, Error, Guest, PROFILE, Request, build};
pub use machine::Environment;
pub use toolchain::{Error as ToolchainError, Toolchain};

/// What every guest is compiled for.
pub const TARGET: &str = "wasm32-unknown-unknown";
