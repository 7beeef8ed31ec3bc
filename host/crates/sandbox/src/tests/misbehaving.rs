//! Guests that misbehave in the engine or as artifacts: each ends as a separate fault, with a reason
//! that can be read, and the next call is as good as any.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use innkeeper_model::{SHORT_DEADLINE_MAX, reason};

use super::*;
use crate::testing::{V, child, child_after, component, contract, desired, guest};

const LIMITS: fn() -> Limits = || Limits {
    deadline: Duration::from_millis(200),
    memory_bytes_max: 4 << 20,
    ..Limits::default()
};

/// The call ends with this fault in bounded time, and leaves nothing to later calls.
#[track_caller]
fn check_faults(guest: Guest, reason: &str, text: &str) -> CallReport {
    let started = Instant::now();
    let called = call_with(guest, &LIMITS());
    let End::Faulted(fault) = &called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(fault.category(), reason, "{fault}");
    assert!(fault.to_string().contains(text), "{fault}");
    assert!(
        fault.to_string().len() < 4096,
        "{}",
        fault.to_string().len()
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(called.memory_peak_bytes <= LIMITS().memory_bytes_max);
    check_innocent();
    called
}

/// A guest that behaves is served as ever.
fn check_innocent() {
    let called = call(guest());
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
}

/// Checks that the description fails for this reason.
#[track_caller]
fn check_describes_nothing(guest: Guest, reason: &str, text: &str) {
    let error = Described::load(&ENGINE, &compiled(guest), &LIMITS())
        .err()
        .unwrap();
    let Error::Describe(source) = &error else {
        panic!("{error}");
    };
    assert_eq!(source.category(), reason, "{source}");
    assert!(source.to_string().contains(text), "{source}");
    check_innocent();
}

const SPIN: &str = "(loop $again (br $again))";

#[test]
fn spins_in_describe() {
    check_describes_nothing(
        guest().doing_on_describe(SPIN),
        reason::DEADLINE_EXCEEDED,
        "1000 ms",
    );
}

/// Every plugin describes itself within a short deadline, also one with a long deadline, and takes no instance from
/// calls meanwhile.
#[test]
fn spins_in_describe_beside_a_call() {
    let engine = Engine::new(&EngineSettings::new(NonZeroU32::MIN)).unwrap();
    let limits = Limits {
        deadline: Duration::from_secs(30),
        ..Limits::default()
    };
    let plugin = plugin_of(&engine, guest());
    let spinning = guest().doing_on_describe(SPIN).build();
    let spinning =
        artifact::compile(&engine, &spinning, &artifact::Limits::default(), None).unwrap();
    let (ended, calls) = std::thread::scope(|scope| {
        let described = scope.spawn(|| Described::load(&engine, &spinning, &limits).err());
        let mut calls = 0;
        while !described.is_finished() {
            let called = plugin.call(&request(), FakeReads::default(), &CONTEXT, &limits);
            assert!(matches!(called.unwrap().0.end, End::Answered(_)));
            calls += 1;
        }
        (described.join().unwrap(), calls)
    });
    let limit = SHORT_DEADLINE_MAX;
    let expected = CallFault::DeadlineExceeded { limit };
    assert!(matches!(ended, Some(Error::Describe(fault)) if fault == expected));
    assert!(calls > 100, "{calls}");
}

#[test]
fn spins_in_the_start_function() {
    check_describes_nothing(
        guest().doing_at_start(SPIN),
        reason::DEADLINE_EXCEEDED,
        "1000 ms",
    );
}

#[test]
fn cannot_describe_itself() {
    check_describes_nothing(
        guest().doing_on_describe("(unreachable)"),
        reason::GUEST_TRAPPED,
        "unreachable",
    );
}

/// A fault in `describe` quotes the panic, as a fault in a call does.
#[test]
fn panics_in_describe() {
    let panicking = "(memory.fill (i32.const 131072) (i32.const 120) (i32.const 8))
        (call $log (i32.const 0) (i32.const 131072) (i32.const 8))
        (unreachable)";
    check_describes_nothing(
        guest().with_pages(20).doing_on_describe(panicking),
        reason::GUEST_TRAPPED,
        "xxxxxxxx",
    );
}

#[test]
fn allocates_in_describe() {
    check_describes_nothing(
        guest().doing_on_describe("(loop $again (drop (memory.grow (i32.const 1))) (br $again))"),
        reason::MEMORY_EXCEEDED,
        "4194304",
    );
}

#[test]
fn many_memories_share_one_limit() {
    let growing = "(loop $again
        (drop (memory.grow $one (i32.const 4)))
        (drop (memory.grow $two (i32.const 4)))
        (drop (memory.grow $three (i32.const 4)))
        (br $again))";
    let memories = "(memory $one 1) (memory $two 1) (memory $three 1)";
    let guest = guest().with_fields(memories).doing(growing, &[]);
    let called = check_faults(guest, reason::MEMORY_EXCEEDED, "4194304");
    // Not each for itself: together they came close to the limit, and not over it.
    assert!(called.memory_peak_bytes > 3 << 20, "{called:?}");
}

#[test]
fn more_memories_or_tables_than_a_component_has_are_refused() {
    for (field, what) in [("(memory 1)", "memories"), ("(table 1 funcref)", "tables")] {
        let bytes = guest().with_fields(&field.repeat(20)).build();
        let error = artifact::check(&bytes, &artifact::Limits::default()).unwrap_err();
        let artifact::Error::TooComplex { what: found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*found, what);
    }
}

#[test]
fn tables_count_as_memory() {
    // Ten tables with nearly as many elements as a table may have, each a pointer: 5 MB.
    let tables = "(table 1 funcref)".repeat(10);
    let grow = |table| format!("(drop (table.grow {table} (ref.null func) (i32.const 65000)))");
    let growing: String = (0..10).map(grow).collect();
    let guest = guest().with_fields(&tables).doing(&growing, &[]);
    check_faults(guest, reason::MEMORY_EXCEEDED, "4194304");
}

#[test]
fn a_table_does_not_grow_beyond_its_elements() {
    let growing = "(if (i32.ne
            (table.grow $one (ref.null func) (i32.const 1000000)) (i32.const -1))
          (then (unreachable)))";
    let guest = guest()
        .with_fields("(table $one 1 funcref)")
        .doing(growing, &[]);
    let called = call_with(guest, &LIMITS());
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
}

#[test]
fn recurses_without_end() {
    let recursing = "(call $deeper)";
    let guest = guest()
        .with_fields("(func $deeper (call $deeper) (call $deeper))")
        .doing(recursing, &[]);
    check_faults(guest, reason::GUEST_TRAPPED, "stack");
}

#[test]
fn overflows_its_shadow_stack() {
    // As compilers lay it out: the stack grows down, towards address zero, and each frame is written to.
    let fields = "(global $stack (mut i32) (i32.const 65536))
        (func $frame
          (global.set $stack (i32.sub (global.get $stack) (i32.const 16384)))
          (i32.store (global.get $stack) (i32.const 1))
          (call $frame))";
    let guest = guest().with_fields(fields).doing("(call $frame)", &[]);
    check_faults(guest, reason::GUEST_TRAPPED, "out of bounds");
}

#[test]
fn panics_with_a_message_of_a_megabyte() {
    // The memory behind the guest's data, with a line end.
    let panicking = "(memory.fill (i32.const 131072) (i32.const 120) (i32.const 1048576))
        (call $log (i32.const 0) (i32.const 131072) (i32.const 1048576))
        (unreachable)";
    let guest = guest().with_pages(20).doing(panicking, &[]);
    let called = check_faults(guest, reason::GUEST_TRAPPED, "xxxx");
    let logged: usize = called.log.iter().map(|line| line.message.len()).sum();
    assert!(logged <= LIMITS().log_bytes_max, "{logged}");
}

#[test]
fn asks_for_four_gigabytes_of_random_bytes() {
    let guest = guest().doing("(call $random (i32.const -1) (i32.const 16))", &[]);
    check_faults(guest, reason::LIMIT_EXCEEDED, "4096 random bytes per call");
}

#[test]
fn floods_the_host_with_calls() {
    let asking = "(loop $again (drop (call $now)) (br $again))";
    check_faults(
        guest().doing(asking, &[]),
        reason::DEADLINE_EXCEEDED,
        "200 ms",
    );
    let reading = "(loop $again
        (call $list {0} {1} (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 16))
        (br $again))";
    let guest = guest().doing(reading, &["v1", "Secret"]);
    let called = check_faults(guest, reason::LIMIT_EXCEEDED, "reads per pass");
    assert!(
        called.reads <= LIMITS().host_calls_max + 1,
        "{}",
        called.reads
    );
}

#[test]
fn floods_its_log() {
    let flooding = "(loop $again (call $log (i32.const 2) {0}) (br $again))";
    let guest = guest().doing(flooding, &[&"water ".repeat(100)]);
    let called = check_faults(guest, reason::DEADLINE_EXCEEDED, "200 ms");
    let logged: usize = called.log.iter().map(|line| line.message.len()).sum();
    assert!(logged <= LIMITS().log_bytes_max, "{logged}");
    assert!(called.log_dropped.lines > 0);
}

#[test]
fn nests_ten_thousand_deep() {
    let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let object = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"a"}},"data":{{"k":{nested}}}}}"#
    );
    let guest = guest().answering(desired(vec![child("web", &object)]));
    check_faults(
        guest,
        reason::OUTPUT_REJECTED,
        "nested more than 64 levels deep",
    );
}

#[test]
fn answers_three_million_empty_texts() {
    const COUNT: u32 = 3_000_000;
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    // Behind the guest's data there are zeros, and a text with address and length zero is empty.
    let after = V::Far(131_072, COUNT);
    let pages = 3 + COUNT * 8 / 65_536;
    let guest = guest()
        .with_pages(pages)
        .answering(desired(vec![child_after("web", object, after)]));
    let limits = Limits {
        memory_bytes_max: 64 << 20,
        ..Limits::default()
    };
    let End::Faulted(fault) = call_with(guest, &limits).end else {
        panic!("the host lifted what it must not");
    };
    assert_eq!(fault.category(), reason::OUTPUT_REJECTED, "{fault}");
    assert!(fault.to_string().contains("too much data"), "{fault}");
    check_innocent();
}

#[test]
fn a_hundred_thousand_functions_are_refused_before_the_compiler_sees_them() {
    let bytes = guest().with_fields(&"(func)".repeat(100_000)).build();
    let started = Instant::now();
    let error = artifact::check(&bytes, &artifact::Limits::default()).unwrap_err();
    assert!(
        matches!(
            error,
            artifact::Error::TooComplex {
                what: "functions",
                ..
            }
        ),
        "{error}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn data_that_no_instance_has_room_for_never_gets_there() {
    // Within the engine's limit, above the plugin's limit.
    let large = r#"(data (i32.const 8388608) "here")"#;
    let within = guest().with_pages(200).with_fields(large);
    check_describes_nothing(within, reason::MEMORY_EXCEEDED, "4194304");
    // Beyond the guest's own memory.
    let beyond = guest().with_fields(large);
    check_describes_nothing(beyond, reason::GUEST_TRAPPED, "out of bounds");
}

#[test]
fn a_memory_that_no_engine_has_is_refused() {
    let bytes = guest().with_pages(65_536).build();
    let limits = artifact::Limits::default();
    let error = artifact::compile(&ENGINE, &bytes, &limits, None)
        .err()
        .unwrap();
    assert!(matches!(error, artifact::Error::Compile { .. }), "{error}");
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.to_string().contains("memory"), "{source}");
}

#[test]
fn a_large_segment_of_data_costs_what_it_holds() {
    // Megabytes in data segments are a file that is too large, or a plugin that is large.
    let text = "x".repeat(20 << 20);
    let data = format!(r#"(data (i32.const 131072) "{text}")"#);
    let bytes = guest().with_pages(400).with_fields(&data).build();
    let small = artifact::Limits {
        bytes_max: 16 << 20,
        ..artifact::Limits::default()
    };
    let error = artifact::check(&bytes, &small).unwrap_err();
    assert!(matches!(error, artifact::Error::TooLarge { .. }), "{error}");
    artifact::check(&bytes, &artifact::Limits::default()).unwrap();
}

#[test]
fn a_plugin_that_exports_another_type_is_refused() {
    // A description that is a number.
    let wit = contract().replace("describe: func() -> manifest;", "describe: func() -> u32;");
    assert_ne!(wit, contract());
    let module = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (unreachable))
        (func (export "innkeeper:plugin/reconciler@0.1.0#describe") (result i32) (i32.const 7))
        (func (export "innkeeper:plugin/reconciler@0.1.0#reconcile")
          (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (unreachable)))"#;
    let error = description_error(&component(&wit, module));
    assert!(matches!(error, Error::Link { .. }), "{error}");
}
