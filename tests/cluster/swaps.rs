//! Swaps between two revisions while users edit parents: no edit is lost, nothing is pruned, and a
//! parent's passes never overlap.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    Write, eventually_for,
    manifest::root,
    process::{is_full, seed},
    user::Kind,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    moody::{API, MoodyFixture, NAME, good, name},
    plugins::HEALTHY,
};

struct Load {
    parents: usize,
    edits_per_second: u32,
    swaps: u32,
    swap_every: Duration,
}

const SAMPLE: Load = Load {
    parents: 60,
    edits_per_second: 20,
    swaps: 6,
    swap_every: Duration::from_secs(2),
};

const FULL: Load = Load {
    parents: 500,
    edits_per_second: 50,
    swaps: 40,
    swap_every: Duration::from_secs(3),
};

/// The children's text under each revision.
const SAYS: [&str; 2] = ["one", "two"];

/// The load for the test that completes each swap before the next.
const TURNS_PARENTS: usize = 10;
const EDITS_PER_TURN: usize = 3;
const TURNS_SAMPLE: usize = 15;
const TURNS_FULL: usize = 1000;

/// The maximum pause before an edit, which spreads edits over the dry run, the switch and the first
/// passes.
const EDITED_WITHIN: Duration = Duration::from_millis(40);

/// One pass in the host's log.
struct Pass {
    parent: String,
    begin: Timestamp,
    end: Timestamp,
}

impl Pass {
    fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        if line["message"] != "pass ended" {
            return None;
        }
        let end: Timestamp = line["timestamp"].as_str()?.parse().ok()?;
        Some(Self {
            parent: line["span"]["parent"].as_str()?.to_owned(),
            begin: end - elapsed(line["elapsed"].as_str()?)?,
            end,
        })
    }
}

/// Parses a duration as Rust prints it, such as `1.5ms`.
fn elapsed(text: &str) -> Option<SignedDuration> {
    let unit = text.find(|c: char| c.is_alphabetic() || c == 'µ')?;
    let (number, unit) = text.split_at(unit);
    let scale = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    SignedDuration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()
}

/// Checks that a parent's passes do not overlap, and returns the number of passes.
#[track_caller]
fn check_serial(log: &str) -> usize {
    let mut ends: BTreeMap<String, Timestamp> = BTreeMap::new();
    let passes: Vec<Pass> = log.lines().filter_map(Pass::parse).collect();
    for pass in &passes {
        if let Some(end) = ends.insert(pass.parent.clone(), pass.end) {
            assert!(
                pass.begin >= end,
                "a pass of {} begins at {}, the one before ends at {end}",
                pass.parent,
                pass.begin
            );
        }
    }
    passes.len()
}

/// Edits parents and swaps revisions under this load. Returns each parent's last note, and when the
/// API server answered that edit.
fn drive(fixture: &MoodyFixture, load: &Load) -> BTreeMap<String, (String, Timestamp)> {
    let user = fixture.site.stage.plane.user();
    let kind = Kind::new(API, "Moody", &fixture.site.namespace);
    let pause = Duration::from_secs(1) / load.edits_per_second;
    let begin = Instant::now();
    let mut notes = BTreeMap::new();
    let mut swaps = 0;
    let mut edits = 0;
    while swaps < load.swaps {
        if begin.elapsed() >= load.swap_every * swaps {
            swaps += 1;
            fixture.apply(&good(SAYS[usize::from(swaps % 2 == 1)]));
        }
        let name = name(usize::try_from(edits).unwrap() % load.parents);
        let note = format!("edit {edits}");
        user.merge(kind, &name, &json!({"spec": {"note": note}}))
            .unwrap();
        notes.insert(name, (note, Timestamp::now()));
        edits += 1;
        sleep((pause * edits).saturating_sub(begin.elapsed()));
    }
    notes
}

/// Waits until every child has the last revision's text and the parent's last note.
#[track_caller]
fn wait_settled(fixture: &MoodyFixture, says: &str, notes: &BTreeMap<String, (String, Timestamp)>) {
    let kind = Kind::new("v1", "ConfigMap", &fixture.site.namespace);
    eventually_for(
        Duration::from_secs(90),
        "all children are up to date",
        || {
            let children = fixture
                .site
                .stage
                .plane
                .user()
                .list(kind, "innkeeper.dev/plugin=moody")
                .map_err(|error| error.to_string())?;
            let wrong = children.iter().find(|child| {
                let name = child["metadata"]["name"].as_str().unwrap_or_default();
                let note = notes.get(name).map_or("", |(note, _)| note);
                child["data"]["says"] != says || child["data"]["note"] != note
            });
            match wrong {
                None if children.len() == fixture.parents => Ok(()),
                None => Err(format!("there are {}", children.len())),
                Some(wrong) => Err(format!("{says} {:?}: {wrong:#}", notes.get("moody-0"))),
            }
        },
    );
}

/// Returns how long after each parent's last edit the host wrote the child, in ascending order.
fn reactions(writes: &[Write], notes: &BTreeMap<String, (String, Timestamp)>) -> Vec<Duration> {
    let reaction = |(name, (_, edited)): (&String, &(String, Timestamp))| {
        let later = |write: &&Write| {
            write.resource == "configmaps" && write.name == *name && write.received >= *edited
        };
        let next = writes
            .iter()
            .filter(later)
            .map(|write| write.answered)
            .min()?;
        next.duration_since(*edited).try_into().ok()
    };
    let mut reactions: Vec<Duration> = notes.iter().filter_map(reaction).collect();
    reactions.sort_unstable();
    reactions
}

/// Checks that nothing was pruned or created again and that no passes overlap, and returns the number
/// of passes.
#[track_caller]
fn check_undisturbed(fixture: &MoodyFixture, uids: &[Value], writes: &[Write], log: &str) -> usize {
    assert_eq!(fixture.uids(), uids);
    let lost: Vec<String> = writes
        .iter()
        .filter(|write| {
            write.verb == "delete" || (write.resource == "configmaps" && write.code == 201)
        })
        .map(Write::line)
        .collect();
    assert_eq!(lost, Vec::<String>::new());
    check_serial(log)
}

/// Counts the revisions that the host activated.
fn served(log: &str) -> usize {
    log.lines()
        .filter(|line| line.contains("\"serving plugin\"") && line.contains(NAME))
        .count()
}

/// A fixture whose host logs all passes.
fn logging(parents: usize) -> MoodyFixture {
    let mut fixture = MoodyFixture::new(parents);
    let log = ["--log", "info,innkeeper_reconcile=debug"].map(str::to_owned);
    fixture.site.stage.options.arguments.extend(log);
    fixture
}

/// An edit during a swap must reach the old or the new revision, and their passes must not overlap
/// for a parent.
#[test]
fn swaps_under_load_lose_no_edit_and_overlap_no_passes() {
    let load = if is_full() { FULL } else { SAMPLE };
    let fixture = logging(load.parents);
    let host = fixture.start();
    let uids = fixture.uids();
    let mark = fixture.site.stage.mark();

    let begin = Instant::now();
    let notes = drive(&fixture, &load);
    let says = SAYS[usize::from(load.swaps % 2 == 1)];
    wait_settled(&fixture, says, &notes);
    let took = begin.elapsed();
    fixture.wait(&host, &HEALTHY);

    let writes = fixture.site.stage.writes_since(mark);
    let log = host.log().unwrap();
    let passes = check_undisturbed(&fixture, &uids, &writes, &log);
    assert!(passes >= load.parents * 2, "{passes} passes");
    // A swap replaces an unfinished earlier one, so not every revision gets activated.
    let served = served(&log);
    assert!(
        served > usize::try_from(load.swaps).unwrap() / 2,
        "{served} revisions served\n{log}"
    );

    let reactions = reactions(&writes, &notes);
    let at = |share: usize| {
        reactions
            .get(reactions.len() * share / 100)
            .copied()
            .unwrap_or_default()
    };
    let mut report = String::new();
    writeln!(
        report,
        "{} parents, {} edits/s, {} swaps asked for, {served} revisions served, in {took:.1?}\n{passes} passes, {} writes of children\nlast edit to write: p50 {:.1?}, p99 {:.1?}",
        load.parents,
        load.edits_per_second,
        load.swaps,
        writes.iter().filter(|write| write.resource == "configmaps").count(),
        at(50),
        at(99),
    )
    .unwrap();
    fs::write(root().join("target/swap-report.txt"), report).unwrap();
}

/// A swap queues every parent, which would hide an edit that the previous swap lost. So each turn
/// waits until all edits are applied.
#[test]
fn no_edit_is_lost_in_a_thousand_swaps() {
    let turns = if is_full() { TURNS_FULL } else { TURNS_SAMPLE };
    let fixture = logging(TURNS_PARENTS);
    // High enough never to delay a write.
    let spec = |says| {
        let mut spec = good(says);
        spec["limits"] = json!({"writesPerMinute": 6000});
        spec
    };
    let host = fixture.start_with(&spec(SAYS[0]));
    let uids = fixture.uids();
    let mark = fixture.site.stage.mark();
    let user = fixture.site.stage.plane.user();
    let kind = Kind::new(API, "Moody", &fixture.site.namespace);
    let mut random = fastrand::Rng::with_seed(seed());
    let mut notes = BTreeMap::new();
    let before = served(&host.log().unwrap());

    for turn in 1..=turns {
        let says = SAYS[turn % 2];
        fixture.apply(&spec(says));
        for edit in 0..EDITS_PER_TURN {
            sleep(EDITED_WITHIN.mul_f64(random.f64()));
            let name = name(random.usize(..TURNS_PARENTS));
            let note = format!("turn {turn}, edit {edit}");
            user.merge(kind, &name, &json!({"spec": {"note": note}}))
                .unwrap();
            notes.insert(name, (note, Timestamp::now()));
        }
        wait_settled(&fixture, says, &notes);
    }

    let writes = fixture.site.stage.writes_since(mark);
    let log = host.log().unwrap();
    let passes = check_undisturbed(&fixture, &uids, &writes, &log);
    assert!(passes >= turns * TURNS_PARENTS, "{passes} passes");
    assert_eq!(served(&log) - before, turns);
}

#[test]
fn overlapping_passes_are_found() {
    let line = |parent: &str, second: u32, elapsed: &str| {
        json!({
            "timestamp": format!("2026-01-01T00:00:{second:02}Z"), "message": "pass ended",
            "elapsed": elapsed, "span": {"parent": parent},
        })
        .to_string()
    };
    let serial = [
        line("a", 10, "1.5s"),
        line("b", 10, "9s"),
        line("a", 11, "950ms"),
    ];
    assert_eq!(check_serial(&serial.join("\n")), 3);
    let overlapping = [line("a", 10, "3µs"), line("a", 11, "1.2s")];
    std::panic::catch_unwind(|| check_serial(&overlapping.join("\n"))).unwrap_err();
}
