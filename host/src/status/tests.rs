use innkeeper_cluster::present;
use innkeeper_model::{Access, Gvk, HashKey, ResourceVersion, Shards};
use serde_json::json;

use super::*;

/// Reads an object of the cluster.
fn object(json: &Value, kind: &Gvk) -> Object {
    let json = json.as_object().unwrap();
    present(json, kind, Access::Full, &HashKey::new([0; 32])).unwrap()
}

fn condition((kind, status, reason): &(&str, &str, &str), generation: i64) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "the cause\u{1b}[31m\nof it",
        "lastTransitionTime": "2030-01-31T08:00:00Z", "observedGeneration": generation,
    })
}

/// Returns the row of a parent of generation 2.
fn parent(observed: i64, conditions: &[(&str, &str, &str)]) -> Option<ParentRow> {
    let conditions = conditions.iter().map(|fields| condition(fields, observed));
    let parent = json!({
        "apiVersion": "example.com/v1", "kind": "Site",
        "metadata": {"name": "a", "namespace": "demo", "generation": 2},
        "status": {"conditions": conditions.collect::<Vec<_>>()},
    });
    ParentRow::new(&object(&parent, &Gvk::new("example.com", "v1", "Site")))
}

/// Returns the row of a Plugin of generation 2 with two parents, of which one is ready if `ready` is 1.
fn plugin(observed: i64, ready: i32, conditions: &[(&str, &str, &str)]) -> PluginRow {
    let conditions = conditions.iter().map(|fields| condition(fields, observed));
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web", "generation": 2},
        "spec": {"source": {"file": {"path": "web.wasm"}}},
        "status": {
            "observedGeneration": observed,
            "conditions": conditions.collect::<Vec<_>>(),
            "revision": "0123456789abcdef",
            "parents": {"total": 2, "synced": 2, "ready": ready, "paused": 0},
            "faults": {"count": 3},
        },
    });
    let kind = Gvk::new("innkeeper.dev", "v1alpha1", "Plugin");
    PluginRow::new(&object(&plugin, &kind))
}

const SERVING: (&str, &str, &str) = ("Serving", "True", "Serving");
const READY: (&str, &str, &str) = ("Ready", "True", "Ready");
const SYNCED: (&str, &str, &str) = ("Synced", "True", "Applied");

#[test]
fn lists_plugins_and_the_parents_that_are_not_ready() {
    let failed = parent(2, &[SYNCED, ("Ready", "False", "ChildrenNotReady")]);
    let status = Status {
        cluster: "https://a".to_owned(),
        problems: vec!["no host runs".to_owned()],
        shards: Vec::new(),
        shards_selected_by_server: None,
        plugins: vec![plugin(2, 1, &[SERVING, READY])],
        parents: failed.into_iter().collect(),
    };
    assert_eq!(status.exit(), Exit::Finding);
    expect_test::expect![[r"
        cluster https://a
        Problem: no host runs

        PLUGIN  SERVING  PARENTS  READY  FAULTS  REVISION
        web     True     2        1      3       0123456789abcdef

        1 parent is not Ready:
        PARENT                   READY  SYNCED  WHY
        Site.example.com demo/a  False  True    ChildrenNotReady: the cause [31m of it
    "]]
    .assert_eq(status.text().as_str());
}

#[test]
fn a_parent_is_listed_unless_it_is_ready_or_belongs_to_no_host() {
    assert_eq!(parent(2, &[SYNCED, READY]), None);
    assert_eq!(parent(2, &[]), None);
    assert_eq!(parent(2, &[("Synced", "Unknown", "NotSelected")]), None);
    let trapped = parent(2, &[("Synced", "False", "GuestTrapped")]).unwrap();
    assert_eq!(trapped.reason, "GuestTrapped");
    let outdated = parent(1, &[SYNCED, READY]).unwrap();
    assert_eq!(
        (&*outdated.ready, &*outdated.message),
        ("Unknown", OUTDATED)
    );
}

#[test]
fn a_plugin_is_well_only_if_its_declared_revision_is_active_and_all_parents_are_ready() {
    assert!(plugin(2, 2, &[SERVING, READY]).is_well());
    assert!(!plugin(2, 1, &[SERVING, READY]).is_well());
    for (observed, conditions, serving, reason) in [
        (2, vec![], "Unknown", ""),
        (1, vec![SERVING, READY], "Unknown", ""),
        (
            2,
            vec![SERVING, ("Ready", "False", "Unreachable")],
            "True",
            "Unreachable",
        ),
        // Not the reason NotLoaded, which only points at another condition.
        (
            2,
            vec![
                ("Serving", "False", "NotLoaded"),
                ("Ready", "False", "NotFound"),
            ],
            "False",
            "NotFound",
        ),
    ] {
        let row = plugin(observed, 2, &conditions);
        assert_eq!(
            (&*row.serving, &*row.reason),
            (serving, reason),
            "{conditions:?}"
        );
        assert!(!row.is_well(), "{conditions:?}");
    }
}

#[test]
fn a_lease_without_a_holder_or_a_renewal_is_a_problem() {
    let now: Timestamp = "2030-01-31T08:00:00Z".parse().unwrap();
    let lease = |holder: &str, renewed: Option<&str>| LeaseRecord {
        holder: holder.to_owned(),
        duration_s: 15,
        renewed: renewed.map(|time| time.parse().unwrap()),
        ..LeaseRecord::default()
    };
    let recent = Some("2030-01-31T07:59:45Z");
    let name = "hosts/innkeeper";
    assert_eq!(expired(name, &lease("host-1", recent), now), None);
    for (lease, expected) in [
        (
            lease("", recent),
            "released the Lease hosts/innkeeper; check the Pods",
        ),
        (lease("host-1", None), "was never renewed"),
        (
            lease("host-1", Some("2030-01-31T07:59:44Z")),
            "host-1 renewed the Lease hosts/innkeeper last at 2030-01-31T07:59:44Z",
        ),
    ] {
        let problem = expired(name, &lease, now).unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
}

/// Returns Leases by name, each with the number of shards and the holder.
fn leases(all: &[(&str, u32, &str)]) -> Leases {
    let lease = |&(name, shards, holder): &(&str, u32, &str)| {
        let lease = Lease {
            version: ResourceVersion(1),
            shards: Shards::new(shards).unwrap(),
            record: LeaseRecord {
                holder: holder.to_owned(),
                ..LeaseRecord::default()
            },
        };
        (name.to_owned(), lease)
    };
    all.iter().map(lease).collect()
}

#[test]
fn every_shard_is_listed_also_one_without_a_lease() {
    let leases = leases(&[
        ("hosts/innkeeper", 4, "a"),
        ("hosts/innkeeper.1", 4, "b"),
        ("hosts/innkeeper.3", 4, ""),
        ("hosts/innkeeper.5", 8, "c"),
        ("hosts/innkeeper.next", 4, ""),
        ("other/innkeeper", 1, "d"),
        ("other/innkeeper.1", 1, "e"),
    ]);
    let rows = shards::rows(&leases);
    expect_test::expect![[r"
        SHARD  LEASE              HOST  NAMESPACE HASHES
        0      hosts/innkeeper    a     0000000000000000 to 3fffffffffffffff
        1      hosts/innkeeper.1  b     4000000000000000 to 7fffffffffffffff
        2      hosts/innkeeper.2  -     8000000000000000 to bfffffffffffffff
        3      hosts/innkeeper.3  -     c000000000000000 to ffffffffffffffff
    "]]
    .assert_eq(shard_table(&rows).as_str());
    let missing: Vec<String> = shards::missing(&leases, &rows).collect();
    assert_eq!(
        missing,
        ["no host serves shard 2: there is no Lease hosts/innkeeper.2; check the Pods of the host"]
    );
    for (name, expected) in [
        ("hosts/innkeeper.5", Role::Outdated),
        ("hosts/innkeeper.next", Role::Asking),
        ("other/innkeeper", Role::Host),
        ("other/innkeeper.1", Role::Host),
    ] {
        assert_eq!(shards::role(&leases, name), expected, "{name}");
    }
}
