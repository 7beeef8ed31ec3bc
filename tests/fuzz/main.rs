//! Fuzz targets: hostile input at the host's edges. No input may cause a panic, a hang or unbounded memory, and none may
//! pass a check that it violates.
//!
//! A target is a function over bytes; for each check it returns whether the input reached the end. Its directory in
//! `corpus/` holds valid and hostile inputs, which together reach all ends, and every input that has failed. Generated
//! inputs are edits of these: JSON tree edits if an input is JSON, byte edits otherwise.
//!
//! Other inputs are generated from a depth, a size and a cost (`shapes.rs`), which edits of small inputs cannot reach.
//! Each target runs in a separate process with a 2 MiB stack and limits on memory and CPU time (`worker.rs`).
//!
//! The edits are proptest strategies, because proptest reduces a failure to few edits. We did not use `bolero` or
//! libfuzzer: without coverage they start from random bytes, which never pass a parser's first check here, and with
//! coverage they would compile everything once more.

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
