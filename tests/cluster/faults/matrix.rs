//! The fault matrix: one or more plans per row against the host, and plans that the naive
//! controller must fail.

use std::time::Duration;

use innkeeper_tests::process::{is_full, plan, seed};

use super::{
    driver::{self, Outcome},
    plan::{Name, Plan, ROWS, Sort, Step},
    report::{self, Entry},
    test_cluster::{PooledCluster, Subject},
};

/// Plans per row in `tests/full`.
const PLANS_FULL: u64 = 12;

/// Random-mix plans in `tests/full`.
const SOAK_FULL: u64 = 60;

/// Time limit for the naive controller to converge: well above the time that it takes without
/// faults.
const CONTROL_PATIENCE: Duration = Duration::from_secs(20);

fn run(plan: &Plan, subject: Subject, patience: Duration) -> Outcome {
    let cluster = PooledCluster::take();
    driver::run(&cluster, plan, subject, patience)
}

fn run_host(plan: &Plan) -> Outcome {
    let outcome = run(plan, Subject::Host, plan.patience());
    report::record(Entry {
        row: format!("F{:02}", plan.name.row),
        name: plan.name.to_string(),
        took: outcome.took,
        slowest: outcome.slowest.clone(),
        violations: outcome.violations.clone(),
    });
    outcome
}

/// Runs a row's plans, or only the requested one.
#[track_caller]
fn check(row: u8) {
    let names: Vec<Name> = match plan().map(|name| name.parse::<Name>().unwrap()) {
        Some(name) if name.row == row => vec![name],
        // The requested plan belongs to another row.
        Some(_) => return,
        None => {
            let count = match row {
                _ if is_full() && row == 20 => SOAK_FULL,
                _ if is_full() => PLANS_FULL,
                _ => 1,
            };
            (seed()..seed() + count)
                .map(|seed| Name::new(row, seed))
                .collect()
        }
    };
    let mut failed = Vec::new();
    for name in names {
        let plan = Plan::new(name);
        let outcome = run_host(&plan);
        if !outcome.violations.is_empty() {
            failed.push(explain(plan, &outcome));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Describes a failed plan. In `tests/full`, reduces it to the smallest part that also fails.
fn explain(plan: Plan, outcome: &Outcome) -> String {
    let mut smallest = plan;
    let mut violations = outcome.violations.clone();
    if is_full() {
        while let Some((plan, outcome)) = smallest
            .smaller()
            .into_iter()
            .map(|plan| (run(&plan, Subject::Host, plan.patience()), plan))
            .find_map(|(outcome, plan)| (!outcome.violations.is_empty()).then_some((plan, outcome)))
        {
            (smallest, violations) = (plan, outcome.violations);
        }
    }
    format!(
        "{smallest}\n{}\nagain: tests/faults {}",
        violations.join("\n"),
        smallest.name
    )
}

/// The part of a plan for the naive controller, which handles only Memcacheds.
fn for_control(name: Name) -> Plan {
    let mut plan = Plan::new(name);
    for round in &mut plan.rounds {
        round.retain(|step| match step {
            Step::Put(parent, _) | Step::EditChild(parent, _) => parent.sort == Sort::Cache,
            _ => true,
        });
    }
    plan
}

/// The naive controller converges without faults, and misses changes that the watches lost. If it
/// passed, the harness could not detect such faults in the host either.
#[test]
fn the_harness_detects_the_faults_of_a_naive_controller() {
    let calm = |name| {
        let mut plan = for_control(name);
        plan.rounds.truncate(1);
        plan
    };
    let ends_well = run(&calm(Name::new(8, 1)), Subject::Naive, CONTROL_PATIENCE);
    assert_eq!(ends_well.violations, Vec::<String>::new());
    // In row 8 it misses a deleted child; in row 9 it may miss any change.
    for (row, expected) in [(8, "Deployment cache-1 is missing"), (9, "")] {
        let plan = for_control(Name::new(row, seed()));
        let outcome = run(&plan, Subject::Naive, CONTROL_PATIENCE);
        let is_live =
            |violation: &String| violation.starts_with("O-live") && violation.contains(expected);
        let sees = outcome.round == Some(1) && outcome.violations.first().is_some_and(is_live);
        assert!(
            sees,
            "the naive controller passes {plan}\n{:#?}",
            outcome.violations
        );
    }
}

macro_rules! rows {
    ($($name:ident $row:literal)*) => {
        $(
            #[test]
            fn $name() {
                check($row);
            }
        )*

        #[test]
        fn every_row_has_a_test() {
            assert_eq!([$($row),*], ROWS);
        }
    };
}

rows! {
    the_host_is_killed_before_a_write 1
    the_host_is_killed_between_a_write_and_its_answer 2
    answers_are_lost 3
    an_api_server_returns_stale_objects 4
    watches_deliver_late 5
    changes_that_cancel_out_are_never_observed 6
    watches_are_cut 7
    the_watch_history_is_gone 8
    etcd_is_restored 9
    api_servers_stop_and_return 10
    the_api_server_is_overloaded 11
    the_api_server_refuses 12
    another_client_writes 13
    parents_are_created_and_deleted 14
    the_holder_of_the_lease_is_cut_off 15
    a_guest_misbehaves 16
    resources_are_scarce 17
    children_are_corrupted 18
    credentials_and_connections_are_refused 19
    all_faults_are_mixed 20
}
