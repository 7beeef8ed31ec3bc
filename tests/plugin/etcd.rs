//! The etcd plugin with real members: etcd and etcdctl run exactly as the plugin's answers say.
//!
//! Only `tests/full` builds all etcd versions and runs all tests; `tests/run` has one short case with one version.

mod authentication;
mod certificates;
mod container;
mod controllers;
mod flags;
mod passes;
mod pods;
mod world;

use std::{collections::BTreeMap, fs, time::Duration};

use innkeeper_tests::process::is_full;
use serde_json::{Value, json};

use self::world::World;

/// The article's image.
const V34: &str = "cnych/etcd:v3.4.13";
const V35: &str = "quay.io/coreos/etcd:v3.5.35";
const V36: &str = "quay.io/coreos/etcd:v3.6.16";
const V37: &str = "quay.io/coreos/etcd:v3.7.3";

fn spec(size: usize, image: &str) -> Value {
    json!({ "size": size, "image": image })
}

/// A Ready cluster with a client's value.
fn formed(spec: Value) -> World {
    let size = usize::try_from(spec["size"].as_u64().unwrap()).unwrap();
    let world = World::new(spec);
    formed_with(world, size)
}

fn formed_with(mut world: World, size: usize) -> World {
    world.until_ready();
    check_members(&world, size);
    world.etcdctl(&["put", "first", "kept"]).unwrap();
    world
}

/// Checks that etcd has exactly these members.
#[track_caller]
fn check_members(world: &World, size: usize) {
    let listed = world.etcdctl(&["member", "list"]).unwrap();
    let started = listed
        .lines()
        .filter(|line| line.contains(", started, "))
        .count();
    assert_eq!((listed.lines().count(), started), (size, size), "{listed}");
}

/// The client's value in one member's data.
fn first_of(world: &World, ordinal: i64) -> Result<String, String> {
    let endpoint = world.url(&format!("demo-{ordinal}.demo"));
    world.etcdctl_at(
        &endpoint,
        &["get", "first", "--print-value-only", "--consistency=s"],
    )
}

#[track_caller]
fn check_first(world: &World, size: usize) {
    for ordinal in 0..i64::try_from(size).unwrap() {
        assert_eq!(
            first_of(world, ordinal).as_deref(),
            Ok("kept"),
            "member {ordinal}"
        );
    }
}

fn uids(world: &World) -> Vec<&Value> {
    world
        .pods
        .values()
        .map(|pod| &pod.object["metadata"]["uid"])
        .collect()
}

/// True if the last member has logged this. It has no Pod while it is replaced.
fn logs(world: &World, text: &str) -> bool {
    world
        .pods
        .get(&2)
        .is_some_and(|pod| pod.logs().contains(text))
}

#[test]
fn founders_form_one_cluster() {
    if !is_full() {
        return;
    }
    for size in [1, 3, 5] {
        let world = formed(spec(size, V36));
        check_first(&world, size);
        assert_eq!(world.operations, [""; 0]);
    }
}

#[test]
fn an_edit_with_a_member_down_keeps_the_quorum() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V36));
    world.away.insert(0);
    world.pods.get_mut(&0).unwrap().crash();
    world.until("a member is down", |world| {
        world.condition("Available").1 == "QuorumAvailable"
    });
    let before: Vec<Value> = uids(&world).into_iter().cloned().collect();
    let mut edited = spec(3, V36);
    edited["snapshotCount"] = json!(5000);
    world.edit(edited);
    world.until("the roll-out is held", |world| {
        world.condition("Progressing").1 == "RolloutHeld"
    });
    for _ in 0..20 {
        world.step();
        world.etcdctl(&["put", "second", "written"]).unwrap();
    }
    assert_eq!(uids(&world), before.iter().collect::<Vec<_>>());
    world.away.clear();
    world.until_ready();
    assert!(uids(&world).iter().all(|uid| !before.contains(uid)));
    check_members(&world, 3);
    check_first(&world, 3);
}

/// The members' IDs by name.
fn ids(world: &World) -> BTreeMap<String, String> {
    let listed = world.etcdctl(&["member", "list"]).unwrap();
    let id = |line: &str| {
        let fields: Vec<&str> = line.split(", ").collect();
        (fields[2].to_owned(), fields[0].to_owned())
    };
    listed.lines().map(id).collect()
}

#[test]
fn members_that_lose_their_disks_are_replaced_with_the_data_of_the_others() {
    let mut cases = vec![(3, &[1][..])];
    if is_full() {
        cases.push((5, &[0, 4]));
    }
    for (size, lost) in cases {
        let mut world = formed(spec(size, V36));
        let before = ids(&world);
        for ordinal in lost {
            world.lose_disk(*ordinal);
        }
        world.until("a replacement begins", |world| {
            world.condition("Progressing").1 == "ReplacingMember"
        });
        world.until_ready();
        check_members(&world, size);
        check_first(&world, size);
        let after = ids(&world);
        for ordinal in 0..i64::try_from(size).unwrap() {
            let name = format!("demo-{ordinal}");
            assert_eq!(
                before[&name] == after[&name],
                !lost.contains(&ordinal),
                "{name}"
            );
        }
        assert_eq!(
            world.operations.len(),
            1 + 2 * lost.len(),
            "{:?}",
            world.operations
        );
    }
}

#[test]
fn the_article_replaces_a_member_and_is_upgraded() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V34));
    let before = ids(&world);
    world.lose_disk(1);
    world.until("a replacement begins", |world| {
        world.condition("Progressing").1 == "ReplacingMember"
    });
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
    assert_ne!(before["demo-1"], ids(&world)["demo-1"]);
    upgrade(&mut world, &spec(3, V35), "3.5.35");
}

#[test]
fn a_replacement_survives_the_loss_of_the_record_at_each_step() {
    if !is_full() {
        return;
    }
    for step in ["survey", "remove", "add"] {
        let mut world = formed(spec(3, V36));
        world.lose_disk(2);
        world.until("the step begins", |world| {
            world
                .operations
                .last()
                .is_some_and(|operation| operation.contains(step))
        });
        world.lose_record();
        world.step();
        world.until_ready();
        check_members(&world, 3);
        check_first(&world, 3);
    }
}

#[test]
fn a_cluster_in_memory_survives_the_deletion_of_each_pod_and_a_roll_out() {
    if !is_full() {
        return;
    }
    let mut memory = spec(3, V36);
    memory["storage"] = json!({ "medium": "Memory", "size": "512Mi" });
    let mut world = formed(memory.clone());
    for ordinal in 0..3 {
        world.delete_pod(ordinal);
        world.until_ready();
        check_members(&world, 3);
        check_first(&world, 3);
    }
    let before: Vec<Value> = uids(&world).into_iter().cloned().collect();
    memory["snapshotCount"] = json!(5000);
    world.edit(memory);
    world.until_ready();
    assert!(uids(&world).iter().all(|uid| !before.contains(uid)));
    check_members(&world, 3);
    check_first(&world, 3);
}

#[test]
fn an_upgrade_goes_through_each_minor_version() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V35));
    world.edit(spec(3, V37));
    world.step();
    let (_, reason, message) = world.condition("Synced");
    assert_eq!(reason, "Invalid");
    assert_eq!(
        message,
        "spec.image: upgrade from 3.5.35 to 3.7.3 is not allowed, go one minor version at a time"
    );
    upgrade(&mut world, &spec(3, V36), "3.6.16");
    // The user need not know that 3.7 members cannot read 3.5 log entries.
    upgrade(&mut world, &spec(3, V37), "3.7.3");
}

/// Upgrades a cluster, and checks that no 3.7 member reads 3.5 entries.
#[track_caller]
fn upgrade(world: &mut World, next: &Value, version: &str) {
    world.edit(next.clone());
    world.until("the upgrade is complete", |world| {
        for pod in world.pods.values() {
            let logs = pod.logs();
            assert!(!logs.contains("unmarshal should never fail"), "{logs}");
        }
        world.condition("Ready").0 == "True" && world.parent["status"]["currentVersion"] == version
    });
    check_members(world, 3);
    check_first(world, 3);
    let status = ["endpoint", "status", "--cluster", "-w", "fields"];
    let endpoints = world.etcdctl(&status).unwrap();
    let stated = format!("\"Version\" : \"{version}\"");
    assert_eq!(endpoints.matches(&stated).count(), 3, "{endpoints}");
}

#[test]
fn an_upgrade_survives_lost_data_and_a_lost_record_in_its_middle() {
    if !is_full() {
        return;
    }
    for medium in ["Persistent", "Memory"] {
        let with_image = |image| {
            let mut spec = spec(3, image);
            spec["storage"] = json!({ "medium": medium, "size": "512Mi" });
            spec
        };
        let mut world = formed(with_image(V35));
        upgrade(&mut world, &with_image(V36), "3.6.16");
        world.edit(with_image(V37));
        world.until("the members write snapshots", |world| {
            world.condition("Progressing").1 == "PreparingUpgrade"
        });
        world.lose_record();
        world.until("a member has the new version", |world| {
            world
                .pods
                .values()
                .any(|pod| pod.is_ready && pod.object["spec"]["containers"][0]["image"] == V37)
        });
        // A 3.7 member gets the data from 3.6 members.
        if medium == "Persistent" {
            world.lose_disk(2);
        } else {
            world.delete_pod(2);
        }
        upgrade(&mut world, &with_image(V37), "3.7.3");
    }
}

#[test]
fn a_pause_and_a_change_of_the_parent_keep_the_data() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V36));
    world.edit(spec(0, V36));
    world.until("the members have stopped", |world| world.pods.is_empty());
    world.edit(spec(3, V36));
    world.until_ready();
    check_first(&world, 3);
    world.lose_record();
    world.until_ready();
    check_members(&world, 3);
    // Another parent takes over the data: etcd knows members by their Pod names.
    world.replace_parent();
    let mut adopting = spec(3, V36);
    adopting["storage"] = json!({ "existingClaims": "Adopt" });
    world.edit(adopting);
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
}

#[test]
fn a_founder_that_comes_late_joins() {
    if !is_full() {
        return;
    }
    let mut late = spec(3, V36);
    late["progressDeadlineSeconds"] = json!(60);
    let mut world = World::new(late);
    world.away.insert(1);
    world.until("two founders are ready", |world| {
        world.pods.values().filter(|pod| pod.is_ready).count() == 2
    });
    world.skip(Duration::from_mins(1));
    world.until("the cluster is formed", |world| {
        world.condition("Available").1 == "QuorumAvailable"
    });
    world.etcdctl(&["put", "first", "kept"]).unwrap();
    world.away.clear();
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
    assert_eq!(world.operations, [""; 0]);
}

#[test]
fn a_member_with_damaged_data_is_told_and_replaced_when_a_user_gives_it_up() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V36));
    world.pods.get_mut(&2).unwrap().crash();
    for file in fs::read_dir(world.data(2).join("wal")).unwrap() {
        let file = file.unwrap().path();
        fs::write(&file, vec![7; 4096]).unwrap();
    }
    world.until("the plugin tells the remedy", |world| {
        world.condition("Degraded").1 == "MemberBroken"
    });
    let (.., message) = world.condition("Degraded");
    assert!(message.contains("; the log of demo-2 ends: "), "{message}");
    assert_eq!(world.operations, [""; 0]);
    world.lose_disk(2);
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
}

#[test]
fn a_full_database_is_enlarged_and_the_alarm_disarmed() {
    if !is_full() {
        return;
    }
    let mut small = spec(3, V36);
    small["quotaBackendBytes"] = json!(4 << 20);
    small["inspection"] = json!({ "schedule": "*/10 * * * *" });
    let mut world = formed(small.clone());
    inspect(&mut world, "NotDegraded");
    let value = "v".repeat(100_000);
    let full = (0..100).find_map(|at| world.etcdctl(&["put", &format!("fill-{at}"), &value]).err());
    assert!(full.is_some_and(|error| error.contains("database space exceeded")));
    let alarms = world.etcdctl(&["alarm", "list"]).unwrap();
    assert!(alarms.contains("NOSPACE"), "{alarms}");
    inspect(&mut world, "NoSpace");
    for _ in 0..20 {
        world.step();
    }
    // The members keep serving reads, and the quota can be increased.
    assert_eq!(world.condition("Available").1, "QuorumHealthy");
    check_first(&world, 3);
    // How versions without /readyz report readiness.
    let member = &world.pods[&0].place;
    let health = |path| member.probe(&json!({ "httpGet": { "path": path, "port": 2381 } }));
    assert_eq!(
        [health("/health"), health("/health?exclude=NOSPACE")],
        [false, true]
    );
    small["quotaBackendBytes"] = json!(64 << 20);
    world.edit(small);
    world.until_ready();
    world.etcdctl(&["alarm", "disarm"]).unwrap();
    world.etcdctl(&["put", "second", "written"]).unwrap();
    inspect(&mut world, "NotDegraded");
}

/// Makes the schedule due, and waits for the `Degraded` reason.
#[track_caller]
fn inspect(world: &mut World, reason: &str) {
    world.inspect();
    world.until("the inspection has ended", |world| {
        world.inspections.iter().all(|job| !job["status"].is_null())
            && world.condition("Degraded").1 == reason
    });
}

#[test]
fn a_member_whose_data_differ_is_told_and_replaced() {
    if !is_full() {
        return;
    }
    let mut inspected = spec(3, V36);
    inspected["inspection"] = json!({ "schedule": "*/10 * * * *" });
    let mut world = formed(inspected);
    // etcd raises the alarm itself when a check finds different hashes.
    let id = u64::from_str_radix(&ids(&world)["demo-2"], 16).unwrap();
    let alarm = json!({ "action": "ACTIVATE", "memberID": id.to_string(), "alarm": "CORRUPT" });
    let path = "/v3/maintenance/alarm";
    assert!(
        world.pods[&0]
            .place
            .asks(2379, "POST", path, &alarm.to_string())
    );
    world.until("no member is ready", |world| {
        world.pods.values().all(|pod| !pod.is_ready)
    });
    inspect(&mut world, "Corrupt");
    // The remedy in the message.
    let first = world.url("demo-0.demo");
    world.etcdctl_at(&first, &["alarm", "disarm"]).unwrap();
    world.until_ready();
    world.lose_disk(2);
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
    inspect(&mut world, "NotDegraded");
}

#[test]
fn an_edit_that_no_member_survives_stops_at_one_and_is_reverted() {
    if !is_full() {
        return;
    }
    let mut world = formed(spec(3, V36));
    let mut bad = spec(3, V36);
    // The plugin only knows the value's form.
    bad["options"] = json!({ "cipher-suites": "UNKNOWN" });
    world.edit(bad);
    world.until("the first member fails", |world| logs(world, "UNKNOWN"));
    world.skip(Duration::from_mins(10));
    world.until("the roll-out is stuck", |world| {
        world.condition("Degraded").1 == "DeadlineExceeded"
    });
    assert_eq!(world.condition("Available").1, "QuorumAvailable");
    world.etcdctl(&["put", "second", "written"]).unwrap();
    world.edit(spec(3, V36));
    world.until_ready();
    check_members(&world, 3);
    check_first(&world, 3);
    assert_eq!(world.operations, [""; 0]);
}
