//! Plan tests: tables, and properties over an API server in memory.
#![cfg_attr(
    test,
    expect(
        clippy::needless_raw_string_hashes,
        reason = "expect-test writes its expectations like this"
    )
)]

#[cfg(test)]
mod adoption;
pub mod build;
#[cfg(test)]
mod children;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod fields;
#[cfg(test)]
mod finalize;
#[cfg(test)]
mod ownership;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod readiness;
pub mod server;
#[cfg(test)]
mod statuses;
