//! One call: input, outcome, and every guest fault.

use std::time::{Duration, Instant};

use innkeeper_model::{FaultKind, Outcome, Readiness, RemovalPolicy, reason};

use super::*;
use crate::testing::{
    child, child_of, desired, fault, finalized, generated, guest, keep, report, report_of, text,
};

const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;

/// `get` for the Secret `x`, with the answer written to address 16.
const GET: &str =
    "(call $get {0} {1} (i32.const 0) (i32.const 0) (i32.const 0) {2} (i32.const 16))";
const GET_TEXTS: [&str; 3] = ["v1", "Secret", "x"];

fn check_rejected(answer: V, at: &str, problem: &str) {
    let limits = Limits {
        output_bytes_max: 10_000,
        object_bytes_max: 2_000,
        children_max: 3,
        ..Limits::default()
    };
    let report = call_with(guest().answering(answer), &limits);
    let End::Faulted(fault) = report.end else {
        panic!("{:?} is no fault", report.end);
    };
    assert_eq!(fault.category(), reason::OUTPUT_REJECTED);
    let CallFault::OutputRejected {
        at: found_at,
        problem: found,
    } = &fault
    else {
        panic!("{fault} is no rejection");
    };
    assert_eq!(found_at, at, "{found}");
    assert!(found.contains(problem), "{found}");
}

#[test]
fn answers_become_the_model() {
    let generate = vec![generated("password", 16, "ab")];
    let answer = desired(vec![child_of("web", CONFIG_MAP, generate)]);
    let called = call(guest().answering(answer));
    let End::Answered(Outcome::Desired(desired)) = called.end.clone() else {
        panic!("{:?}", called.end);
    };
    let [child] = desired.children.as_slice() else {
        panic!("{desired:?}");
    };
    assert_eq!(child.key, "web");
    assert_eq!(child.kind, Gvk::new("", "v1", "ConfigMap"));
    assert_eq!(child.name, "a");
    assert_eq!(child.namespace, None);
    assert_eq!(child.generate[0].length, 16);
    assert_eq!(child.removal, RemovalPolicy::Retain);
    assert_eq!(child.readiness, Readiness::Derive);
    assert_eq!(desired.report.requeue_after_ms, Some(5000));
    assert_eq!(desired.report.status.unwrap()["ready"], 1);
    assert_eq!(desired.report.conditions[0].reason, "Fine");
    assert_eq!(called.fuel, None);
    assert_eq!(
        (called.reads, called.used_now, called.used_random),
        (0, false, false)
    );
    assert!(called.memory_peak_bytes >= 2 * 65_536, "{called:?}");
}

#[test]
fn faults_of_the_guest_are_answers() {
    let called = call(guest().answering(fault(1, "spec.size is negative")));
    let End::GuestFault(fault) = called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(fault.kind, FaultKind::Invalid);
    assert_eq!(fault.message, "spec.size is negative");
    assert_eq!(fault.report, None);
}

#[test]
fn the_whole_request_arrives() {
    // Logs its input: the parent, the configuration, and the first child's object, which is a pointer and a length
    // behind the optional key and the flag.
    let logging = "(call $log (i32.const 2) (local.get $parent) (local.get $parent-len))
        (call $log (i32.const 2) (local.get $config) (local.get $config-len))
        (call $log (i32.const 2)
          (i32.load offset=4 (local.get $children)) (i32.load offset=8 (local.get $children)))
        (call $log (i32.const 2)
          (i32.load offset=16 (local.get $children)) (i32.load offset=20 (local.get $children)))
        (if (i32.ne (local.get $phase) (i32.const 1)) (then (unreachable)))
        (if (i32.ne (local.get $namespace-terminating) (i32.const 1)) (then (unreachable)))
        (if (i32.ne (local.get $children-len) (i32.const 1)) (then (unreachable)))";
    let children = [ObservedChild {
        key: Some(Arc::from("the key")),
        retained: true,
        object: Arc::from("the child"),
    }];
    let request = Request {
        parent: "the parent",
        children: &children,
        phase: Phase::Finalize,
        namespace_terminating: true,
        predict: false,
    };
    let (called, _) = plugin(guest().doing(logging, &[]).answering(finalized()))
        .call(&request, FakeReads::default(), &CONTEXT, &Limits::default())
        .unwrap();
    assert!(
        matches!(called.end, End::Answered(Outcome::Finalized(_))),
        "{:?}",
        called.end
    );
    let lines: Vec<&str> = called
        .log
        .iter()
        .map(|line| line.message.as_str())
        .collect();
    assert_eq!(lines, ["the parent", "{}", "the key", "the child"]);
}

#[test]
fn a_panic_is_told_with_its_message_and_place() {
    let panicking = "(call $log (i32.const 0) {0}) (unreachable)";
    let called = call(guest().doing(panicking, &["boom at src/lib.rs:3"]));
    let End::Faulted(fault) = called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(fault.category(), reason::GUEST_TRAPPED);
    let CallFault::Trapped { message, backtrace } = &fault else {
        panic!("{fault}");
    };
    assert_eq!(message, "boom at src/lib.rs:3");
    assert_eq!(backtrace.first().map(String::as_str), Some("pass"));
}

#[test]
fn a_trap_is_told_by_its_kind() {
    let dividing = "(drop (i32.div_u (i32.const 1) (local.get $phase)))";
    let called = call(guest().doing(dividing, &[]));
    let End::Faulted(CallFault::Trapped { message, .. }) = called.end else {
        panic!("{:?}", called.end);
    };
    assert!(message.contains("divide by zero"), "{message}");
}

#[test]
fn endless_recursion_is_a_trap() {
    let recursing = "(drop (call $pass (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
        (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))";
    let called = call(guest().doing(recursing, &[]));
    let End::Faulted(CallFault::Trapped { message, backtrace }) = called.end else {
        panic!("{:?}", called.end);
    };
    assert!(message.contains("stack"), "{message}");
    assert!(backtrace.len() <= 10, "{backtrace:?}");
}

#[test]
fn an_endless_loop_ends_at_its_deadline() {
    let limits = Limits {
        deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let looping = plugin(guest().doing("(loop $again (br $again))", &[]));
    let started = Instant::now();
    let (called, _) = looping.called(FakeReads::default(), &limits);
    assert_eq!(
        called.end,
        End::Faulted(CallFault::DeadlineExceeded {
            limit: limits.deadline
        })
    );
    // Not before it has had its CPU time, or ten times as much wall time: a busy machine may give it less than a tenth
    // of a processor.
    let wall = started.elapsed();
    let had_its_time = called.cpu >= limits.deadline || wall >= limits.deadline * 10;
    assert!(had_its_time, "{:?} in {wall:?}", called.cpu);
    assert!(called.cpu < limits.deadline * 5, "{:?}", called.cpu);
    assert!(wall < Duration::from_secs(20));
}

#[test]
fn a_start_function_has_a_deadline_too() {
    let limits = Limits {
        deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let artifact = compiled(guest().doing_at_start("(loop $again (br $again))"));
    let error = Described::load(&ENGINE, &artifact, &limits).err().unwrap();
    let Error::Describe(source) = error else {
        panic!("{error}");
    };
    assert_eq!(source.category(), reason::DEADLINE_EXCEEDED);
}

#[test]
fn memory_ends_at_its_limit() {
    let limits = Limits {
        memory_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let growing = "(loop $again (drop (memory.grow (i32.const 1))) (br $again))";
    let called = call_with(guest().doing(growing, &[]), &limits);
    let exceeded = End::Faulted(CallFault::MemoryExceeded {
        limit_bytes: 1 << 20,
    });
    assert_eq!(called.end, exceeded);
    // Growing goes by pages of 64 KiB, and tables count too.
    let peak = called.memory_peak_bytes;
    assert!(peak > (1 << 20) - (1 << 16) - 4096, "{peak}");
    assert!(peak <= 1 << 20, "{peak}");
    // A memory that begins above the limit never comes to be.
    let large = plugin(guest().with_pages(17));
    let (called, _) = large.called(FakeReads::default(), &limits);
    assert_eq!(called.end, exceeded);
}

#[test]
fn a_call_waits_for_memory_that_others_may_need() {
    const ALL: usize = 1 << 20;

    let settings = EngineSettings {
        memory_together_bytes_max: Some(ALL),
        ..EngineSettings::new(4.try_into().unwrap())
    };
    let engine = Engine::new(&settings).unwrap();
    let limits = Limits {
        memory_bytes_max: ALL / 2,
        ..Limits::default()
    };
    let plugin = plugin_of(&engine, guest());
    let call = |limits: &Limits| plugin.called(FakeReads::default(), limits).0;
    let alone = call(&limits);
    assert!(!alone.waited_for_memory, "{alone:?}");
    let memory = engine.memory(ALL * 3 / 4, false);
    let together = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| call(&limits));
        // It cannot end before.
        drop(memory);
        waiting.join().unwrap()
    });
    assert_eq!(together.end, alone.end);

    // No call gets more than half of what the engine has.
    let growing = "(loop $again (drop (memory.grow (i32.const 1))) (br $again))";
    let growing = plugin_of(&engine, guest().doing(growing, &[]));
    let (called, _) = growing.called(FakeReads::default(), &Limits::default());
    let limit_bytes = ALL / 2;
    let exceeded = End::Faulted(CallFault::MemoryExceeded { limit_bytes });
    assert_eq!(called.end, exceeded);
}

#[test]
fn memory_ends_at_the_engine_s_limit() {
    let limits = Limits {
        memory_bytes_max: 1 << 30,
        ..Limits::default()
    };
    let growing = "(loop $again (drop (memory.grow (i32.const 64))) (br $again))";
    let called = call_with(guest().doing(growing, &[]), &limits);
    let limit_bytes = 64 << 20;
    assert_eq!(
        called.end,
        End::Faulted(CallFault::MemoryExceeded { limit_bytes })
    );
}

#[test]
fn nothing_survives_a_call() {
    // Traps when the byte that it sets is there already.
    let marking = "(if (i32.load8_u (i32.const 100)) (then (unreachable)))
        (i32.store8 (i32.const 100) (i32.const 1))
        (drop (memory.grow (i32.const 1)))
        (i32.store8 (i32.const 140000) (i32.const 1))";
    let plugin = plugin(guest().doing(marking, &[]));
    for _ in 0..20 {
        let (called, _) = plugin.called(FakeReads::default(), &Limits::default());
        assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    }
}

#[test]
fn a_flood_of_lines_is_cut_off_and_counted() {
    let flooding = "(local.set $i (i32.const 2000))
        (loop $again
          (call $log (i32.const 2) {0})
          (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    let called = call(guest().doing(flooding, &["0123456789abcdef"]));
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    // 16 bytes for the text and as much for the line, out of 16 KiB.
    assert_eq!(called.log.len(), 512);
    assert_eq!(called.log_dropped.lines, 2000 - 512);
    assert_eq!(called.log_dropped.bytes, (2000 - 512) * 16);
}

#[test]
fn a_line_as_large_as_an_answer_is_cut_off_and_one_beyond_is_a_fault() {
    let limits = Limits {
        output_bytes_max: 10_000,
        ..Limits::default()
    };
    let logging = |bytes: usize| {
        // Behind the guest's data there are zeros, which are a text.
        let line = format!("(call $log (i32.const 2) (i32.const 131072) (i32.const {bytes}))");
        call_with(guest().with_pages(32).doing(&line, &[]), &limits)
    };
    let cut_off = logging(1 << 20);
    assert!(matches!(cut_off.end, End::Answered(_)), "{:?}", cut_off.end);
    assert_eq!(cut_off.log_dropped.lines, 1);
    let End::Faulted(fault) = logging((1 << 20) + 10_001).end else {
        panic!("the host lifts what it must not");
    };
    assert_eq!(fault.category(), reason::LIMIT_EXCEEDED);
    assert_eq!(
        fault.to_string(),
        "the plugin exceeded its limit of 1058576 bytes handed to the host in one call, such as a log line"
    );
}

#[test]
fn the_log_of_all_passes_is_bounded_per_second() {
    let limits = Limits {
        log_bytes_per_second_max: 100,
        ..Limits::default()
    };
    let plugin = plugin(guest().doing("(call $log (i32.const 1) {0})", &[&"x".repeat(60)]));
    let lines: Vec<usize> = (0..3)
        .map(|_| {
            let (called, _) = plugin.called(FakeReads::default(), &limits);
            called.log.len() * 10 + usize::try_from(called.log_dropped.lines).unwrap()
        })
        .collect();
    assert_eq!(lines, [10, 1, 1]);
}

#[test]
fn the_clock_stands_still_and_its_use_is_noted() {
    let asking = "(if (i64.ne (call $now) (i64.const 1700000000123)) (then (unreachable)))
        (if (i64.ne (call $now) (i64.const 1700000000123)) (then (unreachable)))";
    let called = call(guest().doing(asking, &[]));
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    assert!(called.used_now);
}

#[test]
fn offsets_of_time_zones_are_answered_and_counted_as_reads() {
    let expect = |zone: usize, ms: u64, found: u32, offset: i32| {
        format!(
            "(call $zone-offset {{{zone}}} (i64.const {ms}) (i32.const 16))
             (if (i32.ne (i32.load8_u (i32.const 16)) (i32.const {found})) (then (unreachable)))
             (if (i32.ne (i32.mul (i32.const {found}) (i32.load (i32.const 20))) (i32.const {offset}))
               (then (unreachable)))"
        )
    };
    let asking = [
        expect(0, 1_774_745_999_999, 1, 3600),
        expect(0, 1_774_746_000_000, 1, 7200),
        expect(1, 0, 0, 0),
    ];
    let called = call(guest().doing(&asking.concat(), &["Europe/Berlin", "Europe/Nowhere"]));
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    assert_eq!((called.reads, called.used_now), (3, false));
    let looping = "(loop $again (call $zone-offset {0} (i64.const 0) (i32.const 16)) (br $again))";
    let called = call(guest().doing(looping, &["UTC"]));
    let End::Faulted(CallFault::LimitExceeded { limit, .. }) = called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(limit, CallLimit::HostCalls);
}

#[test]
fn random_bytes_follow_from_the_seed() {
    let asking = "(call $random (i32.const 32) (i32.const 16))
        (call $log (i32.const 2) {0})
        (if (i64.eqz (i64.load (i32.load (i32.const 16)))) (then (unreachable)))";
    let called = call(guest().doing(asking, &["asked"]));
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    assert!(called.used_random);
}

#[test]
fn random_bytes_are_bounded() {
    let once = call(guest().doing("(call $random (i32.const 4097) (i32.const 16))", &[]));
    let End::Faulted(fault) = once.end else {
        panic!("{:?}", once.end);
    };
    assert_eq!(fault.category(), reason::LIMIT_EXCEEDED);
    assert_eq!(
        fault.to_string(),
        "the plugin exceeded its limit of 4096 random bytes per call"
    );
    let often = "(local.set $i (i32.const 17))
        (loop $again
          (call $random (i32.const 4096) (i32.const 16))
          (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    let called = call(guest().doing(often, &[]));
    assert_eq!(
        called.end,
        End::Faulted(CallFault::LimitExceeded {
            limit: CallLimit::RandomBytes,
            allowed: 65_536
        })
    );
}

#[test]
fn reads_are_answered_counted_and_handed_back() {
    // The answer's case, the option's case, and the text's length.
    let reading = format!(
        "{GET}
        (if (i32.load8_u (i32.const 16)) (then (unreachable)))
        (if (i32.ne (i32.load8_u (i32.const 20)) (i32.const 1)) (then (unreachable)))
        (if (i32.ne (i32.load (i32.const 28)) (i32.const 17)) (then (unreachable)))
        (call $list {{0}} {{1}} (i32.const 0) (i32.const 0) (i32.const 0)
          (i32.const 1) {{2}} (i32.const 16))
        (if (i32.ne (i32.load (i32.const 24)) (i32.const 2)) (then (unreachable)))"
    );
    let (called, reads) = plugin(guest().doing(&reading, &GET_TEXTS))
        .called(FakeReads::default(), &Limits::default());
    assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    assert_eq!((called.reads, called.read_bytes), (2, 17 + 4));
    assert_eq!(reads.asked, ["v1 Secret x", "v1 Secret [x]"]);
}

#[test]
fn a_refused_read_is_the_guest_s_business() {
    for (failure, case) in [
        (ReadFailure::NotGranted(secrets()), 0),
        (ReadFailure::NotServed(secrets()), 1),
    ] {
        let reading = format!(
            "{GET}
            (if (i32.ne (i32.load8_u (i32.const 16)) (i32.const 1)) (then (unreachable)))
            (if (i32.ne (i32.load8_u (i32.const 20)) (i32.const {case})) (then (unreachable)))"
        );
        let (called, _) = plugin(guest().doing(&reading, &GET_TEXTS))
            .called(FakeReads::failing(failure), &Limits::default());
        assert!(matches!(called.end, End::Answered(_)), "{:?}", called.end);
    }
}

#[test]
fn a_read_of_what_is_not_cached_parks_the_pass() {
    // The code after the read must not run.
    let reading = format!("{GET} (call $log (i32.const 2) {{2}})");
    let (called, reads) = plugin(guest().doing(&reading, &GET_TEXTS)).called(
        FakeReads::failing(ReadFailure::NotSynced(secrets())),
        &Limits::default(),
    );
    assert_eq!(called.end, End::Parked(secrets()));
    assert_eq!(called.log, []);
    assert_eq!(reads.asked.len(), 1);
}

#[test]
fn an_impossible_read_is_a_fault() {
    let failing = |texts: &[&str], failure: Option<ReadFailure>| {
        let reads = FakeReads {
            fails: failure,
            asked: Vec::new(),
        };
        let plugin = plugin(guest().doing(GET, texts));
        match plugin.called(reads, &Limits::default()).0.end {
            End::Faulted(fault @ CallFault::ReadRejected { .. }) => fault.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(failing(&["a/b/c", "Secret", "x"], None).contains("\"a/b/c\""));
    assert!(failing(&["v1", "", "x"], None).contains("no kind"));
    let selector = ReadFailure::InvalidSelector {
        selector: "a=(".to_owned(),
    };
    assert!(failing(&GET_TEXTS, Some(selector)).contains("a=("));
}

#[test]
fn reads_are_bounded_in_number_and_bytes() {
    let reading = format!("(loop $again {GET} (br $again))");
    let exceeded =
        |limits: Limits| match call_with(guest().doing(&reading, &GET_TEXTS), &limits).end {
            End::Faulted(CallFault::LimitExceeded { limit, allowed }) => (limit, allowed),
            other => panic!("{other:?}"),
        };
    let few = Limits {
        host_calls_max: 5,
        ..Limits::default()
    };
    assert_eq!(exceeded(few), (CallLimit::HostCalls, 5));
    let short = Limits {
        host_call_bytes_max: 100,
        ..Limits::default()
    };
    assert_eq!(exceeded(short), (CallLimit::HostCallBytes, 100));
}

#[test]
fn garbage_is_rejected_where_it_is() {
    let at = "child 0 (\"web\"): object";
    let one = |object: &str| desired(vec![child("web", object)]);
    check_rejected(one("{"), at, "not JSON");
    check_rejected(one("[]"), at, "this is a list");
    check_rejected(one("{}"), &format!("{at}.apiVersion"), "missing");
    check_rejected(
        one(r#"{"apiVersion":"a/b/c","kind":"X","metadata":{"name":"a"}}"#),
        &format!("{at}.apiVersion"),
        "group/version",
    );
    check_rejected(
        one(r#"{"apiVersion":"v1","kind":"X","metadata":{"name":7}}"#),
        &format!("{at}.metadata.name"),
        "a number",
    );
    check_rejected(
        one(r#"{"apiVersion":"v1","kind":"X","metadata":{"name":"a"},"data":{"k":[null]}}"#),
        &format!("{at}.data.k[0]"),
        "null is refused",
    );
    check_rejected(
        keep(report_of(Some("7"), vec![], None)),
        "status",
        "a number",
    );
    check_rejected(finalized(), "answer", "phase finalize only");
}

#[test]
fn sizes_are_rejected_where_they_are() {
    check_rejected(
        desired(vec![child("a", CONFIG_MAP); 4]),
        "children",
        "there are 4, 3",
    );
    let object = format!("{{\"a\":\"{}\"}}", "x".repeat(2000));
    check_rejected(
        desired(vec![child("web", &object)]),
        "child 0 (\"web\"): object",
        "2008 bytes, 2000 are allowed",
    );
    let status = format!("{{\"a\":\"{}\"}}", "x".repeat(2000));
    check_rejected(
        keep(report_of(Some(&status), vec![], None)),
        "status",
        "2008 bytes, 2000 are allowed",
    );
    let status = format!("{{\"a\":\"{}\"}}", "x".repeat(20_000));
    check_rejected(
        keep(report_of(Some(&status), vec![], None)),
        "answer",
        "20008 bytes",
    );
    // More than is lifted at all.
    let status = "x".repeat(2 << 20);
    check_rejected(
        keep(report_of(Some(&status), vec![], None)),
        "answer",
        "too much data",
    );
}

#[test]
fn what_is_no_value_is_rejected() {
    // A condition status that does not exist: the contract has three.
    let broken = V::Rec(vec![text("Good"), V::U8(77), text("Fine"), text("")]);
    check_rejected(keep(report_of(None, vec![broken], None)), "answer", "");
    // An answer outside the memory.
    let called = call(guest().doing("(return (i32.const -8))", &[]));
    assert!(
        matches!(called.end, End::Faulted(CallFault::OutputRejected { .. })),
        "{:?}",
        called.end
    );
}

#[test]
fn fuel_is_the_same_in_every_run() {
    let metered = engine(Metering::Fuel);
    let working = "(local.set $i (i32.const 1000))
        (loop $again
          (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))";
    let bytes = guest().doing(working, &[]).build();
    let plugin = described(&metered, &bytes)
        .configure(&serde_json::Map::new(), &checker())
        .unwrap();
    let cost = || {
        let limits = Limits::default();
        let (called, _) = plugin.called(FakeReads::default(), &limits);
        called.fuel.unwrap()
    };
    let first = cost();
    assert!((1000..100_000).contains(&first), "{first}");
    assert_eq!(cost(), first);
}

#[test]
fn a_fuelled_engine_keeps_deadlines() {
    let metered = engine(Metering::Fuel);
    let limits = Limits {
        deadline: Duration::from_millis(20),
        ..Limits::default()
    };
    let bytes = guest().doing("(loop $again (br $again))", &[]).build();
    let plugin = described(&metered, &bytes)
        .configure(&serde_json::Map::new(), &checker())
        .unwrap();
    let (called, _) = plugin.called(FakeReads::default(), &limits);
    assert!(
        matches!(called.end, End::Faulted(CallFault::DeadlineExceeded { .. })),
        "{:?}",
        called.end
    );
}

#[test]
fn a_report_without_anything_is_possible() {
    let called = call(guest().answering(keep(report_of(None, vec![], None))));
    let End::Answered(Outcome::Keep(stated)) = called.end else {
        panic!("{:?}", called.end);
    };
    assert_eq!(stated, innkeeper_model::Report::default());
    let called = call(guest().answering(keep(report())));
    assert!(matches!(called.end, End::Answered(_)));
}
