//! The sums and the output of a plan.

use expect_test::expect;
use innkeeper_model::{GroupKind, ObjectId, foreign::is_deceptive};
use innkeeper_plan::Changes;
use innkeeper_plugin_controller::{FleetPlan, ParentPlan};
use innkeeper_reconcile::{ParentOutcome, PlannedChanges};
use serde_json::Value;

use super::*;
use crate::config::PlanFormat;

type Parent = (ObjectId, ParentPlan);

fn id(kind: &str, name: &str) -> ObjectId {
    ObjectId::new(GroupKind::new("apps", kind), Some("demo"), name)
}

fn parent(name: &str, outcome: ParentOutcome) -> Parent {
    let plan = ParentPlan {
        is_asked: false,
        outcome,
    };
    let kind = GroupKind::new("example.com", "Web");
    (ObjectId::new(kind, Some("demo"), name), plan)
}

fn updates(name: &str) -> Parent {
    let changes = Changes {
        updates: vec![id("Deployment", name)],
        ..Changes::default()
    };
    let planned = PlannedChanges {
        changes,
        status: true,
        operations: vec![format!("update apps/v1 Deployment demo/{name}")],
        differences: vec![
            format!("update apps/v1 Deployment demo/{name}"),
            "  spec.replicas is 3, and was 2".to_owned(),
        ],
    };
    parent(name, ParentOutcome::Planned(planned))
}

fn deletes(name: &str) -> Parent {
    let changes = Changes {
        creates: vec![id("StatefulSet", name)],
        deletes: vec![id("Deployment", name)],
        ..Changes::default()
    };
    let planned = PlannedChanges {
        changes,
        operations: vec![
            format!("create apps/v1 StatefulSet demo/{name}"),
            format!("prune apps/v1 Deployment demo/{name}"),
        ],
        ..PlannedChanges::default()
    };
    parent(name, ParentOutcome::Planned(planned))
}

fn faults(name: &str, known: bool) -> Parent {
    let fault = ParentOutcome::Fault {
        reason: "Invalid".to_owned(),
        message: "spec.size is odd\n\u{1b}[31m".to_owned(),
        known,
    };
    parent(name, fault)
}

fn plan(parents: Vec<Parent>) -> FleetPlan {
    let revision = "sha256:0123456789abcdef0123".to_owned();
    let mut plan = FleetPlan::new("web".to_owned(), revision, None, usize::MAX);
    for (parent, planned) in parents {
        plan.add(parent, planned);
    }
    plan
}

fn every_outcome() -> FleetPlan {
    let same = ParentOutcome::Planned(PlannedChanges::default());
    let mut asked = updates("asked");
    asked.1.is_asked = true;
    plan(vec![
        asked,
        updates("b"),
        deletes("c"),
        faults("d", false),
        faults("e", true),
        parent("f", ParentOutcome::Skipped),
        parent("g", same),
    ])
}

fn shown(plan: &FleetPlan, format: PlanFormat, has_colours: bool) -> String {
    show::all(plan, format, has_colours)
        .unwrap()
        .as_str()
        .to_owned()
}

#[test]
fn hostile_texts_of_a_plan_neither_control_a_terminal_nor_forge_a_line() {
    const TEXT: &str = "a\u{1b}[2J\r\nforged\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}";

    let fault = ParentOutcome::Fault {
        reason: "Invalid".to_owned(),
        message: TEXT.to_owned(),
        known: false,
    };
    let planned = PlannedChanges {
        differences: vec![TEXT.to_owned()],
        operations: vec![TEXT.to_owned()],
        ..PlannedChanges::default()
    };
    let mut asked = parent("b", ParentOutcome::Planned(planned));
    asked.1.is_asked = true;
    let plan = plan(vec![parent("a", fault), asked]);
    for format in [PlanFormat::Text, PlanFormat::Markdown, PlanFormat::Json] {
        for has_colours in [false, true] {
            let text = shown(&plan, format, has_colours);
            let deceives = |c: char| is_deceptive(c) && c != '\n';
            assert!(!text.contains(deceives), "{text:?}");
            assert!(
                !text.lines().any(|line| line.starts_with("forged")),
                "{text}"
            );
        }
    }
}

#[test]
fn deletes_and_new_faults_are_findings() {
    let same = || parent("a", ParentOutcome::Planned(PlannedChanges::default()));
    for (parents, expected) in [
        (vec![], Exit::Success),
        (vec![same(), updates("b")], Exit::Success),
        (vec![parent("a", ParentOutcome::Skipped)], Exit::Success),
        (vec![same(), faults("b", true)], Exit::Success),
        (vec![same(), faults("b", false)], Exit::Finding),
        (vec![same(), deletes("b")], Exit::Finding),
    ] {
        let plan = plan(parents);
        assert_eq!(exit(&plan.forecast), expected, "{plan:?}");
    }
}

#[test]
fn people_read_the_deletes_first() {
    let text = shown(&every_outcome(), PlanFormat::Text, false);
    expect![[r"
        Plan of plugin web, revision 0123456789abcdef against the live objects

        Deletes 1 child:
          Deployment.apps demo/c

        Fails for 1 parent:
          Web.example.com demo/d: Invalid: spec.size is odd [31m

        CHILDREN          DELETES  CREATES  UPDATES
        Deployment.apps   1        0        2
        StatefulSet.apps  0        1        0

        5 parents: unchanged 1, deletes 1, creates 1, updates 2, changed status 2, faults 1, faults that the other plugin has too 1, without a pass (paused, not selected or deleted) 1.

        Web.example.com demo/asked
          update apps/v1 Deployment demo/asked
            spec.replicas is 3, and was 2
    "]].assert_eq(&text);
}

#[test]
fn deletes_are_red_at_a_terminal_only() {
    let plan = every_outcome();
    let coloured = shown(&plan, PlanFormat::Text, true);
    let red = "\u{1b}[31mDeletes 1 child:\u{1b}[0m\n\u{1b}[31m  Deployment.apps demo/c\u{1b}[0m\n";
    assert!(coloured.contains(red), "{coloured}");
    let piped = shown(&plan, PlanFormat::Text, false);
    assert!(!piped.contains('\u{1b}'), "{piped}");
}

#[test]
fn people_read_twenty_deletes_and_programs_all() {
    let parents = (0..25).map(|number| deletes(&format!("web-{number:02}")));
    let plan = plan(parents.collect());
    let text = shown(&plan, PlanFormat::Text, false);
    assert!(text.contains("demo/web-19\n  and 5 more\n"), "{text}");
    let json: Value = serde_json::from_str(&shown(&plan, PlanFormat::Json, false)).unwrap();
    assert_eq!(json["deletes"].as_array().unwrap().len(), 25);
}

#[test]
fn programs_read_the_parents_that_change_or_fail() {
    let json: Value =
        serde_json::from_str(&shown(&every_outcome(), PlanFormat::Json, false)).unwrap();
    expect![[r#"
        {
          "creates": 1,
          "deletes": 1,
          "faults": 1,
          "faultsKnown": 1,
          "parents": 5,
          "skipped": 1,
          "statusChanges": 2,
          "unchanged": 1,
          "updates": 2
        }
    "#]]
    .assert_eq(&format!("{:#}\n", json["counts"]));
    expect![[r#"
        [
          {
            "creates": 0,
            "deletes": 1,
            "group": "apps",
            "kind": "Deployment",
            "updates": 2
          },
          {
            "creates": 1,
            "deletes": 0,
            "group": "apps",
            "kind": "StatefulSet",
            "updates": 0
          }
        ]
    "#]]
    .assert_eq(&format!("{:#}\n", json["kinds"]));
    let parents = json["parents"].as_array().unwrap();
    let names: Vec<&str> = parents
        .iter()
        .map(|parent| parent["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["asked", "b", "c", "d", "e"]);
    assert_eq!(
        parents[0]["differences"][1],
        "  spec.replicas is 3, and was 2"
    );
    assert_eq!(parents[1]["differences"], Value::Null);
    assert_eq!(parents[3]["fault"]["known"], false);
}

#[test]
fn a_pull_request_shows_the_same_in_markdown() {
    let text = shown(&every_outcome(), PlanFormat::Markdown, false);
    expect![[r"
        ### Plan of plugin web, revision 0123456789abcdef against the live objects

        **Deletes 1 child:**

        - `Deployment.apps demo/c`

        **Fails for 1 parent:**

        - `Web.example.com demo/d: Invalid: spec.size is odd [31m`

        | Children | Deletes | Creates | Updates |
        |---|---|---|---|
        | Deployment.apps | 1 | 0 | 2 |
        | StatefulSet.apps | 0 | 1 | 0 |

        5 parents: unchanged 1, deletes 1, creates 1, updates 2, changed status 2, faults 1, faults that the other plugin has too 1, without a pass (paused, not selected or deleted) 1.

        <details><summary>Web.example.com demo/asked</summary>

        ```
        update apps/v1 Deployment demo/asked
          spec.replicas is 3, and was 2
        ```

        </details>
    "]].assert_eq(&text);
}
