//! Builds guest crates into components.
//!
//! A guest is an ordinary crate. It becomes a plugin in two steps: it is compiled for
//! `wasm32-unknown-unknown`, a target without any WASI import, and the module is wrapped into a
//! component. [`Toolchain::find`] chooses the compiler for the first step, [`build()`] does both.
//!
//! cargo decides whether a guest must be recompiled, and a component is written only if the bytes
//! have changed. This crate does not run or interpret components, and it prints nothing: it passes
//! progress to the caller, line by line.

mod build;
mod component;
mod machine;
mod toolchain;

pub use build::{Component, DEV_PROFILE, Error, Guest, PROFILE, Request, build};
pub use machine::Environment;
pub use toolchain::{Error as ToolchainError, Toolchain};

/// The target of every guest.
pub const TARGET: &str = "wasm32-unknown-unknown";
