//! Fuzz targets: hostile input at the edges of the host. No input causes a panic, a hang, or memory without a bound, and
//! none of it passes a check that it breaks.
//!
//! A target is a function of bytes, which returns for each of its checks if the input reached the end. Its directory in
//! `corpus/` holds valid and hostile inputs, which together reach all ends, and every input that has failed. The
//! generated inputs are edits of these: of the JSON tree where an input is JSON, of the bytes otherwise.
//!
//! The edits are strategies of proptest, which reduces a failure to few edits. `bolero` and libfuzzer were not taken:
//! without coverage they start from random bytes, which no parser here lets pass its first check, and with coverage they
//! would compile everything once more.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic, and a run prints its rate"
)]

mod answer;
mod artifact;
mod corpus;
mod edits;
mod oracle;
mod plugin;
mod recording;
mod registry;
mod run;
mod watch;
mod worker;
