//! Runs and restorations with the real gobackup, real servers and real storages.
//!
//! `INNKEEPER_GOBACKUP` names the program. Without it these tests do not run, and tests/full reports it.

use std::fs;

use super::{
    case::{Case, archives, files, shelf, stored},
    run::{Run, Shell},
    *,
};

mod dumps;
mod formats;
mod storages;

/// The program; none if these tests do not run.
#[expect(
    clippy::disallowed_methods,
    reason = "tests/full sets it, and there is no configuration of unit tests"
)]
pub(super) fn program() -> Option<String> {
    std::env::var("INNKEEPER_GOBACKUP")
        .ok()
        .filter(|path| !path.is_empty())
}
