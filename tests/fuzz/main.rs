//! Fuzz targets: hostile input at the edges of the host. No input causes a panic, a hang, or memory without a bound, and
//! none of it passes a check that it breaks.
//!
//! A target is a function of bytes, which returns for each of its checks if the input reached the end. Its directory in
//! `corpus/` holds valid and hostile inputs, which together reach all ends, and every input that has failed. The
//! generated inputs are edits of these: of the JSON tree where an input is JSON, of the bytes otherwise.
//!
//! Other inputs are made from a depth, a size and a cost (`shapes.rs`), as edits of small inputs reach none of these.
//! Each target runs in a process of its own with a stack of 2 MiB and limits of memory and CPU time (`worker.rs`).
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
mod definition;
mod description;
mod edits;
mod oracle;
mod plugin;
mod recording;
mod registry;
mod run;
mod selector;
mod shapes;
mod watch;
mod worker;

/// Returns the check of a target.
fn check_of(target: &str) -> worker::Check {
    match target {
        "answer" => |input| answer::answer(input).into(),
        "artifact" => |input| artifact::check(input).into(),
        "definition" => |input| definition::check(input).into(),
        "description" => |input| description::check(input).into(),
        "misbehave" => worker::misbehave,
        "plugin" => |input| plugin::check(input).into(),
        "recording" => |input| recording::check(input).into(),
        "registry" => |input| registry::check(input).into(),
        "selector" => |input| selector::check(input).into(),
        "watch" => |input| watch::check(input).into(),
        _ => panic!("there is no target {target}"),
    }
}
