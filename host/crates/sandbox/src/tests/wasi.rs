//! Components whose toolchain imports WASI: time that stands still, random bytes from the seed, and nothing else.

use std::time::Instant;

use innkeeper_model::Digest;

use super::*;
use crate::{
    convert,
    random::RandomStream,
    sandbox,
    state::StoreState,
    testing::{Foreign, guest},
    wasi::is_known,
};

/// The WASI interfaces that the guests here use, as WIT texts.
const PACKAGES: &str = r"
package wasi:io@0.2.3 {
  interface error { resource error { to-debug-string: func() -> string; } }
  interface poll {
    resource pollable { ready: func() -> bool; block: func(); }
    poll: func(in: list<borrow<pollable>>) -> list<u32>;
  }
  interface streams {
    use error.{error};
    use poll.{pollable};
    variant stream-error { last-operation-failed(error), closed }
    resource input-stream {
      read: func(len: u64) -> result<list<u8>, stream-error>;
      subscribe: func() -> pollable;
    }
    resource output-stream {
      check-write: func() -> result<u64, stream-error>;
      blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
      write-zeroes: func(len: u64) -> result<_, stream-error>;
      subscribe: func() -> pollable;
      splice: func(src: borrow<input-stream>, len: u64) -> result<u64, stream-error>;
    }
  }
}
package wasi:cli@0.2.3 {
  interface environment {
    get-environment: func() -> list<tuple<string, string>>;
    get-arguments: func() -> list<string>;
    initial-cwd: func() -> option<string>;
  }
  interface exit { exit: func(status: result); }
  interface stdin { use wasi:io/streams@0.2.3.{input-stream}; get-stdin: func() -> input-stream; }
  interface stdout { use wasi:io/streams@0.2.3.{output-stream}; get-stdout: func() -> output-stream; }
  interface stderr { use wasi:io/streams@0.2.3.{output-stream}; get-stderr: func() -> output-stream; }
  interface terminal-output { resource terminal-output; }
  interface terminal-stdout {
    use terminal-output.{terminal-output};
    get-terminal-stdout: func() -> option<terminal-output>;
  }
}
package wasi:clocks@0.2.3 {
  interface monotonic-clock {
    use wasi:io/poll@0.2.3.{pollable};
    now: func() -> u64;
    resolution: func() -> u64;
    subscribe-duration: func(when: u64) -> pollable;
  }
  interface wall-clock {
    record datetime { seconds: u64, nanoseconds: u32 }
    now: func() -> datetime;
    resolution: func() -> datetime;
  }
}
package wasi:random@0.2.3 {
  interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; }
  interface insecure-seed { insecure-seed: func() -> tuple<u64, u64>; }
}
package wasi:sockets@0.2.3 {
  interface network { resource network; enum error-code { unknown, access-denied } }
  interface instance-network {
    use network.{network};
    instance-network: func() -> network;
  }
  interface tcp {
    use wasi:io/streams@0.2.3.{input-stream, output-stream};
    use wasi:io/poll@0.2.3.{pollable};
    use network.{error-code};
    resource tcp-socket {
      subscribe: func() -> pollable;
      finish-connect: func() -> result<tuple<input-stream, output-stream>, error-code>;
    }
  }
  interface tcp-create-socket {
    use network.{error-code};
    use tcp.{tcp-socket};
    create-tcp-socket: func() -> result<tcp-socket, error-code>;
  }
}
package wasi:filesystem@0.2.3 {
  interface types {
    resource descriptor { is-same-object: func(other: borrow<descriptor>) -> bool; }
  }
  interface preopens {
    use types.{descriptor};
    get-directories: func() -> list<tuple<descriptor, string>>;
  }
}
";

/// A guest that imports these functions: interface, function, and the type as core WebAssembly
/// has it. A function is called `$` and its name without the part in brackets, and `now` is `$clock`.
fn importing(interfaces: &[&str], functions: &[(&str, &str, &str)]) -> Guest {
    let world = interfaces
        .iter()
        .map(|name| format!("import wasi:{name}@0.2.3;"));
    let module = functions.iter().map(|(interface, name, kind)| {
        let id = match *name {
            // The contract has a function with that name.
            "now" => "clock",
            name => name.split_once(']').map_or(name, |(_, rest)| rest),
        };
        format!(r#"(import "wasi:{interface}@0.2.3" "{name}" (func ${id} {kind}))"#)
    });
    guest().importing(Foreign {
        packages: PACKAGES.to_owned(),
        world: world.collect(),
        module: module.collect(),
    })
}

#[track_caller]
fn check_answers(guest: Guest) -> CallReport {
    let called = call(guest);
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    called
}

#[track_caller]
fn check_faults(guest: Guest, reason: &str, text: &str) {
    let called = call(guest);
    let End::Faulted(fault) = called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(fault.category(), reason, "{fault}");
    assert!(fault.to_string().contains(text), "{fault}");
}

/// Traps unless two instructions have the same value.
fn same(kind: &str, one: &str, other: &str) -> String {
    format!("(if ({kind}.ne {one} {other}) (then (unreachable)))")
}

#[test]
fn clocks_stand_still_at_the_time_of_the_pass() {
    let functions = [
        ("clocks/wall-clock", "now", "(param i32)"),
        ("clocks/monotonic-clock", "resolution", "(result i64)"),
    ];
    let wall = [
        "(call $clock (i32.const 16))".to_owned(),
        same("i64", "(i64.load (i32.const 16))", "(i64.const 1700000000)"),
        same("i32", "(i32.load (i32.const 24))", "(i32.const 123000000)"),
    ];
    let interfaces = ["clocks/wall-clock", "clocks/monotonic-clock"];
    let called = check_answers(importing(&interfaces, &functions).doing(&wall.concat(), &[]));
    assert!(called.used_now);

    let functions = [("clocks/monotonic-clock", "now", "(result i64)")];
    let now = same("i64", "(call $clock)", "(i64.const 1700000000123000000)");
    let guest = importing(&["clocks/monotonic-clock"], &functions);
    let called = check_answers(guest.doing(&now.repeat(3), &[]));
    assert!(called.used_now);
}

#[test]
fn a_runtime_starts_with_constants_that_are_no_part_of_the_pass() {
    let functions = [
        ("clocks/monotonic-clock", "now", "(result i64)"),
        ("random/random", "get-random-u64", "(result i64)"),
    ];
    let start = "(if (i64.ne (call $clock) (i64.const 1000000000)) (then (unreachable)))
        (global.set $first (call $get-random-u64))";
    let importing = |doing: &str| {
        importing(&["clocks/monotonic-clock", "random/random"], &functions)
            .with_fields("(global $first (mut i64) (i64.const 0))")
            .doing_at_start(start)
            .doing(doing, &[])
    };
    let called = check_answers(importing(""));
    assert!(!called.used_now && !called.used_random);
    // In the pass, both come from the pass.
    let now = same("i64", "(call $clock)", "(i64.const 1700000000123000000)");
    let called = check_answers(importing(&now));
    assert!(called.used_now && !called.used_random);
    let asking = "(if (i64.eq (call $get-random-u64) (global.get $first)) (then (unreachable)))";
    let called = check_answers(importing(asking));
    assert!(!called.used_now && called.used_random);
}

#[test]
fn the_random_bytes_of_a_start_follow_from_the_component() {
    let component = Digest::hash(b"component");
    let reads = Box::new(FakeReads::default());
    let mut state = StoreState::new(reads, &CONTEXT, &Limits::default(), 0, &component);
    let expected = RandomStream::new(*component.as_bytes()).take(8);
    assert_eq!(state.random(8).unwrap(), expected);
    assert_eq!(state.random_bytes, None);
    state.instantiated_at = Some(Instant::now());
    let expected = RandomStream::new(CONTEXT.seed).take(8);
    assert_eq!(state.random(8).unwrap(), expected);
    assert_eq!(state.random_bytes, Some(8));
}

const POLLING: [(&str, &str, &str); 5] = [
    (
        "clocks/monotonic-clock",
        "subscribe-duration",
        "(param i64) (result i32)",
    ),
    ("io/poll", "[method]pollable.block", "(param i32)"),
    (
        "io/poll",
        "[method]pollable.ready",
        "(param i32) (result i32)",
    ),
    ("io/poll", "poll", "(param i32 i32 i32)"),
    ("io/poll", "[resource-drop]pollable", "(param i32)"),
];

#[test]
fn a_wait_that_is_over_takes_no_time() {
    let waiting = "(local.set $i (call $subscribe-duration (i64.const 0)))
        (if (i32.eqz (call $pollable.ready (local.get $i))) (then (unreachable)))
        (call $pollable.block (local.get $i))
        (i32.store (i32.const 16) (local.get $i))
        (call $poll (i32.const 16) (i32.const 1) (i32.const 32))
        (if (i32.ne (i32.load (i32.const 36)) (i32.const 1)) (then (unreachable)))
        (if (i32.load (i32.load (i32.const 32))) (then (unreachable)))
        (call $pollable (local.get $i))";
    let guest = || importing(&["io/poll", "clocks/monotonic-clock"], &POLLING);
    check_answers(guest().doing(waiting, &[]));
    // If one of two is over, that one is returned.
    let two = "(i32.store (i32.const 16) (call $subscribe-duration (i64.const 1)))
        (i32.store (i32.const 20) (call $subscribe-duration (i64.const 0)))
        (call $poll (i32.const 16) (i32.const 2) (i32.const 32))
        (if (i32.ne (i32.load (i32.const 36)) (i32.const 1)) (then (unreachable)))
        (if (i32.ne (i32.load (i32.load (i32.const 32))) (i32.const 1)) (then (unreachable)))";
    check_answers(guest().doing(two, &[]));

    let functions = [("io/poll", "poll", "(param i32 i32 i32)")];
    let nothing = "(call $poll (i32.const 16) (i32.const 0) (i32.const 32))";
    let guest = importing(&["io/poll"], &functions).doing(nothing, &[]);
    check_faults(guest, "GuestTrapped", "empty poll list");
}

#[test]
fn a_wait_for_a_later_time_ends_the_call() {
    const TOLD: &str = "nothing in a pass can be waited for";
    let guest = || importing(&["io/poll", "clocks/monotonic-clock"], &POLLING);
    // A year, in nanoseconds.
    let waiting = "(local.set $i (call $subscribe-duration (i64.const 31536000000000000)))
        (if (call $pollable.ready (local.get $i)) (then (unreachable)))";
    check_answers(guest().doing(waiting, &[]));
    let blocking = format!("{waiting} (call $pollable.block (local.get $i))");
    check_faults(guest().doing(&blocking, &[]), "GuestTrapped", TOLD);
    let polling = format!(
        "{waiting} (i32.store (i32.const 16) (local.get $i))
        (call $poll (i32.const 16) (i32.const 1) (i32.const 32))"
    );
    check_faults(guest().doing(&polling, &[]), "GuestTrapped", TOLD);
}

#[test]
fn a_call_of_sockets_ends_the_call() {
    let interfaces = [
        "io/streams",
        "sockets/network",
        "sockets/instance-network",
        "sockets/tcp",
        "sockets/tcp-create-socket",
    ];
    let functions = [
        (
            "sockets/instance-network",
            "instance-network",
            "(result i32)",
        ),
        (
            "sockets/tcp-create-socket",
            "create-tcp-socket",
            "(param i32)",
        ),
        (
            "sockets/tcp",
            "[method]tcp-socket.subscribe",
            "(param i32) (result i32)",
        ),
        (
            "sockets/tcp",
            "[method]tcp-socket.finish-connect",
            "(param i32 i32)",
        ),
        ("sockets/tcp", "[resource-drop]tcp-socket", "(param i32)"),
        ("io/streams", "[resource-drop]input-stream", "(param i32)"),
    ];
    let guest = || importing(&interfaces, &functions);
    // A toolchain may import them all, and a plugin need not call any.
    check_answers(guest());
    for (doing, problem) in [
        (
            "(drop (call $instance-network))",
            "wasi:sockets/instance-network#instance-network",
        ),
        (
            "(call $create-tcp-socket (i32.const 16))",
            "wasi:sockets/tcp-create-socket#create-tcp-socket",
        ),
    ] {
        check_faults(guest().doing(doing, &[]), "GuestTrapped", problem);
        check_faults(
            guest().doing(doing, &[]),
            "GuestTrapped",
            "plugins have no network",
        );
        let starting = Described::load(
            &ENGINE,
            &compiled(guest().with_fields(&initializing(doing))),
            &Limits::default(),
        );
        let error = format!("{:#}", anyhow::Error::new(starting.err().unwrap()));
        assert!(error.contains(problem), "{error}");
    }
}

/// The function that a component calls when the instance is complete: a core module's start function may not yet call
/// imports that answer into its memory.
fn initializing(instructions: &str) -> String {
    format!(r#"(func (export "_initialize") {instructions})"#)
}

/// What Go's runtime calls before the guest's first function, and klog after it.
#[test]
fn a_guest_may_start_as_the_runtime_of_go_does() {
    let interfaces = [
        "io/streams",
        "cli/environment",
        "cli/stderr",
        "clocks/wall-clock",
        "clocks/monotonic-clock",
        "random/random",
        "sockets/network",
        "sockets/tcp",
    ];
    let functions = [
        ("cli/environment", "get-environment", "(param i32)"),
        ("cli/environment", "get-arguments", "(param i32)"),
        ("cli/stderr", "get-stderr", "(result i32)"),
        ("clocks/monotonic-clock", "now", "(result i64)"),
        ("random/random", "get-random-bytes", "(param i64 i32)"),
        ("random/random", "get-random-u64", "(result i64)"),
        ("sockets/tcp", "[resource-drop]tcp-socket", "(param i32)"),
    ];
    let starting = "(call $get-arguments (i32.const 16))
        (if (i32.eqz (i32.load (i32.const 20))) (then (unreachable)))
        (if (i32.eqz (i32.load (i32.add (i32.load (i32.const 16)) (i32.const 4)))) (then (unreachable)))
        (call $get-environment (i32.const 16))
        (if (i64.eqz (call $clock)) (then (unreachable)))
        (global.set $started (call $clock))
        (call $get-random-bytes (i64.const 32) (i32.const 16))
        (global.set $hash (i64.load (i32.load (i32.const 16))))
        (drop (call $get-stderr))";
    let guest = |doing: &str| {
        importing(&interfaces, &functions)
            .with_fields(
                "(global $started (mut i64) (i64.const 0)) (global $hash (mut i64) (i64.const 0))",
            )
            .with_fields(&initializing(starting))
            .doing(doing, &[])
    };
    let called = check_answers(guest(""));
    // Such a pass is remembered, and the recording is not secret.
    assert!(!called.used_now && !called.used_random);
    // No clock goes back.
    let later = "(if (i64.le_u (call $clock) (global.get $started)) (then (unreachable)))";
    assert!(check_answers(guest(later)).used_now);
}

#[test]
fn random_bytes_follow_from_the_seed_of_the_pass() {
    let expected = RandomStream::new(CONTEXT.seed).take(32);
    let number = |at: usize| i64::from_be_bytes(expected[at..at + 8].try_into().unwrap());
    let functions = [
        ("random/random", "get-random-u64", "(result i64)"),
        ("random/insecure-seed", "insecure-seed", "(param i32)"),
        ("random/random", "get-random-bytes", "(param i64 i32)"),
    ];
    let bytes = i64::from_le_bytes(expected[24..32].try_into().unwrap());
    let asking = [
        same(
            "i64",
            "(call $get-random-u64)",
            &format!("(i64.const {})", number(0)),
        ),
        "(call $insecure-seed (i32.const 16))".to_owned(),
        same(
            "i64",
            "(i64.load (i32.const 16))",
            &format!("(i64.const {})", number(8)),
        ),
        same(
            "i64",
            "(i64.load (i32.const 24))",
            &format!("(i64.const {})", number(16)),
        ),
        "(call $get-random-bytes (i64.const 8) (i32.const 32))".to_owned(),
        same(
            "i64",
            "(i64.load (i32.load (i32.const 32)))",
            &format!("(i64.const {bytes})"),
        ),
    ];
    let guest = importing(&["random/random", "random/insecure-seed"], &functions);
    let called = check_answers(guest.doing(&asking.concat(), &[]));
    assert!(called.used_random);
}

#[test]
fn random_of_four_gigabytes_is_refused() {
    let functions = [("random/random", "get-random-bytes", "(param i64 i32)")];
    for bytes in ["4294967296", "4097", "-1"] {
        let asking = format!("(call $get-random-bytes (i64.const {bytes}) (i32.const 16))");
        let guest = importing(&["random/random"], &functions).doing(&asking, &[]);
        check_faults(guest, "LimitExceeded", "4096 random bytes per call");
    }
}

#[test]
fn there_are_one_argument_and_no_variables_directories_and_terminals() {
    let interfaces = [
        "cli/environment",
        "cli/terminal-output",
        "cli/terminal-stdout",
        "filesystem/types",
        "filesystem/preopens",
    ];
    let functions = [
        ("cli/environment", "get-environment", "(param i32)"),
        ("cli/environment", "get-arguments", "(param i32)"),
        ("cli/environment", "initial-cwd", "(param i32)"),
        ("cli/terminal-stdout", "get-terminal-stdout", "(param i32)"),
        ("filesystem/preopens", "get-directories", "(param i32)"),
    ];
    // Each writes a length behind an address, or an option's case.
    let lists = [
        ("get-environment", 0),
        ("get-arguments", 1),
        ("get-directories", 0),
    ];
    let lists = lists.map(|(name, length)| {
        let length = format!("(i32.const {length})");
        format!("(i64.store (i32.const 16) (i64.const -1)) (call ${name} (i32.const 16))")
            + &same("i32", "(i32.load (i32.const 20))", &length)
    });
    let options = ["initial-cwd", "get-terminal-stdout"].map(|name| {
        format!("(i64.store (i32.const 16) (i64.const -1)) (call ${name} (i32.const 16))")
            + &same("i32", "(i32.load8_u (i32.const 16))", "(i32.const 0)")
    });
    let asking = lists.concat() + &options.concat();
    let called = check_answers(importing(&interfaces, &functions).doing(&asking, &[]));
    // Output outside the answer does not change the pass.
    assert!(!called.used_now && !called.used_random);
}

#[test]
fn there_is_no_file_to_do_anything_with() {
    let functions = [(
        "filesystem/types",
        "[method]descriptor.is-same-object",
        "(param i32 i32) (result i32)",
    )];
    for descriptor in [0, 3, 1_000_000] {
        let file = format!("(i32.const {descriptor})");
        let comparing = format!("(drop (call $descriptor.is-same-object {file} {file}))");
        let guest = importing(&["filesystem/types"], &functions).doing(&comparing, &[]);
        check_faults(guest, "GuestTrapped", "handle");
    }
}

#[test]
fn there_is_nothing_to_read() {
    let functions = [
        ("cli/stdin", "get-stdin", "(result i32)"),
        (
            "io/streams",
            "[method]input-stream.read",
            "(param i32 i64 i32)",
        ),
    ];
    let reading = [
        "(call $input-stream.read (call $get-stdin) (i64.const 10) (i32.const 16))".to_owned(),
        // An error, and that the stream is closed.
        same("i32", "(i32.load8_u (i32.const 16))", "(i32.const 1)"),
        same("i32", "(i32.load8_u (i32.const 20))", "(i32.const 1)"),
    ];
    let guest = importing(&["io/streams", "cli/stdin"], &functions);
    check_answers(guest.doing(&reading.concat(), &[]));
}

const OUTPUT: [(&str, &str, &str); 4] = [
    ("cli/stdout", "get-stdout", "(result i32)"),
    ("cli/stderr", "get-stderr", "(result i32)"),
    (
        "io/streams",
        "[method]output-stream.blocking-write-and-flush",
        "(param i32 i32 i32 i32)",
    ),
    ("io/streams", "[resource-drop]output-stream", "(param i32)"),
];

fn writing() -> Guest {
    importing(&["io/streams", "cli/stdout", "cli/stderr"], &OUTPUT)
}

/// Writes a text to a stream.
fn write(stream: &str, text: &str) -> String {
    format!(
        "(call $output-stream.blocking-write-and-flush (call $get-{stream}) {text} (i32.const 16))"
    )
}

#[test]
fn what_is_written_goes_into_the_log() {
    let lines = write("stdout", "{0}") + &write("stderr", "{1}") + &write("stdout", "{2}");
    let called = check_answers(writing().doing(&lines, &["one\nt", "careful\n", "wo"]));
    let lines: Vec<(LogLevel, &str)> = called
        .log
        .iter()
        .map(|line| (line.level, line.message.as_str()))
        .collect();
    let expected = [
        (LogLevel::Info, "one"),
        (LogLevel::Error, "careful"),
        (LogLevel::Info, "two"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_panic_that_is_written_is_told() {
    let panicking = write("stderr", "{0}") + "(unreachable)";
    let guest = writing().doing(
        &panicking,
        &["thread 'main' panicked at src/lib.rs:3:5:\nboom\n"],
    );
    let problem = "thread 'main' panicked at src/lib.rs:3:5: boom";
    check_faults(guest, "GuestTrapped", problem);
}

#[test]
fn a_panic_that_ends_in_an_exit_is_told() {
    let functions = [&OUTPUT[..], &[("cli/exit", "exit", "(param i32)")]].concat();
    let interfaces = ["io/streams", "cli/stdout", "cli/stderr", "cli/exit"];
    let panicking = write("stderr", "{0}") + "(call $exit (i32.const 1))";
    let guest = importing(&interfaces, &functions)
        .doing(&panicking, &["panic: boom\n\ngoroutine 1 [running]:\n"]);
    check_faults(guest, "GuestTrapped", "panic: boom goroutine 1");
}

#[test]
fn a_flood_of_written_lines_is_cut_off_and_counted() {
    for stream in ["stdout", "stderr"] {
        // The same handle every time.
        let writing_on = write(stream, "{0}")
            .replace(&format!("(call $get-{stream})"), "(i32.load (i32.const 8))");
        let flooding = repeating(2000, &writing_on);
        let opening = format!("(i32.store (i32.const 8) (call $get-{stream}))");
        let called = check_answers(writing().doing(&(opening + &flooding), &["0123456789abcde\n"]));
        // 15 bytes for the text and 16 for the line, out of 16 KiB.
        assert!(
            (500..600).contains(&called.log.len()),
            "{}",
            called.log.len()
        );
        let bytes: usize = called.log.iter().map(|line| line.message.len() + 16).sum();
        assert!(bytes <= 16 * 1024, "{bytes}");
        assert!(called.log_dropped.lines >= 1400, "{:?}", called.log_dropped);
    }
}

#[test]
fn zeroes_are_bounded() {
    let write_zeroes = (
        "io/streams",
        "[method]output-stream.write-zeroes",
        "(param i32 i64 i32)",
    );
    let functions = [OUTPUT[0], write_zeroes];
    let writing = |bytes: &str| {
        let call = "(call $output-stream.write-zeroes (call $get-stdout)";
        importing(&["io/streams", "cli/stdout"], &functions)
            .doing(&format!("{call} (i64.const {bytes}) (i32.const 16))"), &[])
    };
    check_answers(writing("65536"));
    for bytes in ["65537", "-1"] {
        check_faults(writing(bytes), "GuestTrapped", "more zeroes than");
    }
}

/// Repeats instructions.
fn repeating(times: u32, instructions: &str) -> String {
    format!(
        "(local.set $i (i32.const {times}))
        (loop $again
          {instructions}
          (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
    )
}

#[test]
fn handles_are_bounded() {
    let opening = repeating(5000, "(call $output-stream (call $get-stdout))");
    check_answers(writing().doing(&opening, &[]));
    let hoarding = repeating(1001, "(drop (call $get-stdout))");
    let problem = "1000 handles at a time";
    check_faults(writing().doing(&hoarding, &[]), "LimitExceeded", problem);
}

#[test]
fn waits_are_bounded() {
    let functions = [
        (
            "clocks/monotonic-clock",
            "subscribe-duration",
            "(param i64) (result i32)",
        ),
        ("io/poll", "[resource-drop]pollable", "(param i32)"),
    ];
    let guest = || importing(&["io/poll", "clocks/monotonic-clock"], &functions);
    let waiting = "(call $subscribe-duration (i64.const 1))";
    let dropping = repeating(5000, &format!("(call $pollable {waiting})"));
    check_answers(guest().doing(&dropping, &[]));
    let hoarding = repeating(1001, &format!("(drop {waiting})"));
    let problem = "1000 handles at a time";
    check_faults(guest().doing(&hoarding, &[]), "LimitExceeded", problem);
}

#[test]
fn only_a_guest_that_uses_wasi_has_its_state() {
    let imports = || importing(&["cli/stdout", "io/streams"], &OUTPUT[..1]);
    let calling = imports().doing("(drop (call $get-stdout))", &[]);
    for (guest, expected) in [(guest(), false), (imports(), false), (calling, true)] {
        let artifact = compiled(guest);
        let adapter = convert::adapter(artifact.contract(), &artifact.code.component).unwrap();
        let limits = Limits::default();
        let (end, _) = sandbox::run(
            (&ENGINE, artifact.digest()),
            Box::new(FakeReads::default()),
            &CONTEXT,
            &limits,
            |store| {
                adapter
                    .reconcile(store, &request(), "{}", &limits)?
                    .unwrap()
                    .unwrap();
                Ok(store.data().wasi.is_some())
            },
        );
        assert_eq!(end.ok(), Some(expected));
    }
}

#[test]
fn an_exit_is_no_answer() {
    let functions = [("cli/exit", "exit", "(param i32)")];
    let guest = importing(&["cli/exit"], &functions).doing("(call $exit (i32.const 0))", &[]);
    let problem = "Exited with i32 exit status 0";
    check_faults(guest, "GuestTrapped", problem);
}

#[test]
fn there_is_nothing_to_splice() {
    let functions = [
        ("cli/stdin", "get-stdin", "(result i32)"),
        ("cli/stdout", "get-stdout", "(result i32)"),
        (
            "io/streams",
            "[method]output-stream.splice",
            "(param i32 i32 i64 i32)",
        ),
    ];
    let splicing = [
        "(call $output-stream.splice
          (call $get-stdout) (call $get-stdin) (i64.const 1) (i32.const 16))"
            .to_owned(),
        // An error, and that the stream is closed.
        same("i32", "(i32.load8_u (i32.const 16))", "(i32.const 1)"),
        same("i32", "(i32.load8_u (i32.const 24))", "(i32.const 1)"),
    ];
    let guest = importing(&["io/streams", "cli/stdin", "cli/stdout"], &functions);
    check_answers(guest.doing(&splicing.concat(), &[]));
}

#[test]
fn interfaces_that_lie_about_their_types_are_refused() {
    let packages = PACKAGES.replace("now: func() -> datetime;", "now: func() -> u32;");
    let guest = guest().importing(Foreign {
        packages,
        world: "import wasi:clocks/wall-clock@0.2.3;".to_owned(),
        module: r#"(import "wasi:clocks/wall-clock@0.2.3" "now" (func (result i32)))"#.to_owned(),
    });
    let error = Described::load(&ENGINE, &compiled(guest), &Limits::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Link { .. }), "{error}");
    let source = format!("{:#}", anyhow::Error::new(error));
    assert!(source.contains("wasi:clocks/wall-clock"), "{source}");
}

#[test]
fn what_is_not_empty_is_refused_by_name() {
    for (package, interface, advice) in [
        (
            "wasi:sockets@0.3.0",
            "wasi:sockets/tcp@0.3.0",
            "plugins have no network",
        ),
        (
            "wasi:http@0.2.3",
            "wasi:http/tcp@0.2.3",
            "plugins have no network",
        ),
        (
            "wasi:filesystem@0.3.0",
            "wasi:filesystem/tcp@0.3.0",
            "plugins have no files",
        ),
        ("wasi:clocks@0.2.3", "wasi:clocks/tcp@0.2.3", "host.now"),
        (
            "wasi:keyvalue@0.2.3",
            "wasi:keyvalue/tcp@0.2.3",
            "wasm32-unknown-unknown",
        ),
        (
            "acme:doors@1.0.0",
            "acme:doors/tcp@1.0.0",
            "only innkeeper:plugin may be imported",
        ),
    ] {
        let guest = guest().importing(Foreign {
            packages: format!("package {package} {{ interface tcp {{ connect: func(); }} }}"),
            world: format!("import {interface};"),
            module: format!(r#"(import "{interface}" "connect" (func))"#),
        });
        let error = artifact::check(&guest.build(), &artifact::Limits::default()).unwrap_err();
        let artifact::Error::ForbiddenImports { imports } = &error else {
            panic!("{error}");
        };
        let [refused] = imports.as_slice() else {
            panic!("{imports:?}");
        };
        assert!(refused.starts_with(interface), "{refused}");
        assert!(refused.contains(advice), "{refused}");
    }
}

#[test]
fn drafts_of_the_supported_version_are_refused() {
    assert!(is_known("wasi:cli/exit@0.2.0"));
    assert!(is_known("wasi:cli/exit@0.2.99"));
    assert!(!is_known("wasi:cli/exit@0.2.0-rc-2023-12-05"));
    assert!(!is_known("wasi:cli/exit@0.3.0"));
}
