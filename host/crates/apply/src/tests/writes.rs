//! The requests, their order, and broken exchanges: A5, A6, A7, A10, A11, L1.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use expect_test::expect;
use innkeeper_model::{
    Generated, Gvk, HostScope, Object, ObjectId, Operation, PluginName, RemovalPolicy,
    ResourceVersion, Resources, Shards, Uid,
};
use innkeeper_plan::{Plan, StatusWrite};
use serde_json::{Map, Value, json};

use super::{
    Cluster, object,
    scripted::{Answer, Scripted, serve, writer_to},
};
use crate::{ErrorKind, Execution, Session, Target, Writer};
use innkeeper_lease::{Claim, LeaseRecord, since_boot};

const LONG: Duration = Duration::from_secs(20);

fn plugin() -> PluginName {
    PluginName::new("web").unwrap()
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn ok(version: u64) -> Answer {
    let body = json!({"metadata": {"uid": "u", "resourceVersion": version.to_string()}});
    Answer::Say(200, "", body)
}

fn parent() -> Object {
    Object {
        finalizers: vec!["other".into(), "innkeeper.dev/web".into()],
        ..object("Web", "shop", "p1", 10)
    }
}

fn target() -> Target {
    let parent = parent();
    Target::new(&parent, &Cluster.resource(&parent.kind).unwrap())
}

fn secret() -> Gvk {
    Gvk::new("", "v1", "Secret")
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(secret().group_kind(), Some("demo"), name)
}

fn generated() -> Vec<Generated> {
    ["old", "new"]
        .map(|key| Generated {
            key: key.to_owned(),
            length: 4,
            alphabet: "ab".to_owned(),
            token: None,
        })
        .to_vec()
}

fn body(name: &str) -> Arc<Map<String, Value>> {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    Arc::new(fields(body))
}

fn create(name: &str) -> Operation {
    Operation::Create {
        key: name.to_owned(),
        id: id(name),
        kind: secret(),
        body: body(name),
        generate: generated(),
    }
}

fn update(name: &str) -> Operation {
    Operation::Update {
        restores: false,
        key: name.to_owned(),
        id: id(name),
        kind: secret(),
        uid: Uid("u1".into()),
        resource_version: ResourceVersion(7),
        body: body(name),
        generate: generated(),
    }
}

fn transfer(name: &str) -> Operation {
    Operation::Transfer {
        key: name.to_owned(),
        id: id(name),
        kind: secret(),
        uid: Uid("u1".into()),
        resource_version: ResourceVersion(7),
        patch: json!([{"op": "test", "path": "/metadata/uid", "value": "u1"}]),
        to: RemovalPolicy::Delete,
    }
}

fn prune(name: &str) -> Operation {
    Operation::Prune {
        id: id(name),
        kind: secret(),
        uid: Uid("u1".into()),
        resource_version: ResourceVersion(7),
    }
}

/// Runs a plan with these operations; the random source only gives zeros.
async fn execute(writer: &Writer, operations: Vec<Operation>) -> Execution {
    let plan = Plan {
        operations,
        ..Plan::default()
    };
    let data = fields(json!({"old": "b2xk", "other": "eA=="}));
    let secrets = BTreeMap::from([(id("s"), data)]);
    let live = BTreeMap::new();
    let mut random = |buffer: &mut [u8]| buffer.fill(0);
    let mut session = Session {
        plugin: &plugin(),
        manager: "innkeeper:web",
        account: None,
        resources: &Cluster,
        secrets: &secrets,
        live: &live,
        random: &mut random,
    };
    writer.execute(&plan, &mut target(), &mut session).await
}

async fn run(answers: Vec<Answer>, operations: Vec<Operation>) -> (Scripted, Execution) {
    let server = serve(answers).await;
    let execution = execute(&server.writer(LONG, 4), operations).await;
    (server, execution)
}

fn shown(server: &Scripted) -> String {
    let requests = server.requests.lock();
    let lines = requests.iter().map(|request| {
        format!(
            "{}\n  {} {}\n",
            request.line, request.content_type, request.body
        )
    });
    lines.collect()
}

#[tokio::test]
async fn every_write_is_bound_to_what_was_observed_a5_a6_l1() {
    let operations = vec![
        Operation::AddFinalizer,
        transfer("t"),
        create("c"),
        update("s"),
        prune("p"),
        Operation::RemoveFinalizer,
    ];
    let with_finalizer = json!({
        "metadata": {"uid": "p1", "resourceVersion": "11", "finalizers": ["innkeeper.dev/web"]},
    });
    let answers = vec![Answer::Say(200, "", with_finalizer), ok(12)];
    let (server, execution) = run(answers, operations).await;
    assert!(execution.results.iter().all(|(_, result)| result.is_ok()));
    expect![[r#"
        PATCH /apis/example.dev/v1/namespaces/demo/webs/shop?&force=true&fieldManager=innkeeper%3Aweb%3Ahost
          application/apply-patch+yaml {"apiVersion":"example.dev/v1","kind":"Web","metadata":{"finalizers":["innkeeper.dev/web"],"name":"shop","namespace":"demo","resourceVersion":"10","uid":"p1"}}
        PATCH /api/v1/namespaces/demo/secrets/t?&fieldManager=innkeeper%3Aweb
          application/json-patch+json [{"op":"test","path":"/metadata/uid","value":"u1"}]
        PATCH /api/v1/namespaces/demo/secrets/c?&fieldManager=innkeeper%3Aweb
          application/apply-patch+yaml {"apiVersion":"v1","data":{"new":"YWFhYQ==","old":"YWFhYQ=="},"kind":"Secret","metadata":{"name":"c","resourceVersion":"1"}}
        PATCH /api/v1/namespaces/demo/secrets/s?&force=true&fieldManager=innkeeper%3Aweb
          application/apply-patch+yaml {"apiVersion":"v1","data":{"new":"YWFhYQ==","old":"b2xk"},"kind":"Secret","metadata":{"name":"s","resourceVersion":"7","uid":"u1"}}
        DELETE /api/v1/namespaces/demo/secrets/p?
          application/json {"preconditions":{"resourceVersion":"7","uid":"u1"},"propagationPolicy":"Foreground"}
        PATCH /apis/example.dev/v1/namespaces/demo/webs/shop?&fieldManager=innkeeper%3Aweb%3Ahost
          application/json-patch+json [{"op":"test","path":"/metadata/uid","value":"p1"},{"op":"test","path":"/metadata/resourceVersion","value":"11"},{"op":"test","path":"/metadata/finalizers/0","value":"innkeeper.dev/web"},{"op":"remove","path":"/metadata/finalizers/0"}]
    "#]].assert_eq(&shown(&server));
}

/// A6: after a transfer, the parent must not be reported as applied before the child has the fields.
#[tokio::test]
async fn the_watch_shows_each_child_that_was_written() {
    for (operation, expected) in [
        (create("c"), true),
        (update("s"), true),
        (transfer("t"), true),
        (prune("p"), false),
    ] {
        let name = operation.to_string();
        let (_server, execution) = run(vec![ok(12)], vec![operation]).await;
        assert_eq!(execution.changed_children(), expected, "{name}");
    }
}

#[tokio::test]
async fn without_the_finalizer_nothing_is_written_l1() {
    let refused = Answer::Say(409, "", json!({}));
    let operations = vec![Operation::AddFinalizer, create("a"), prune("b")];
    let (server, execution) = run(vec![refused], operations).await;
    assert_eq!(server.lines().len(), 1);
    assert!(execution.effects().parent.is_some());
    assert!(execution.is_conflict_only());
}

#[tokio::test]
async fn a_failure_stops_prunes_and_release_and_nothing_else_a7() {
    let refused = Answer::Say(422, "", json!({"message": "no"}));
    let operations = vec![
        create("a"),
        create("b"),
        prune("c"),
        Operation::RemoveFinalizer,
    ];
    let (server, execution) = run(vec![refused, ok(2)], operations).await;
    assert_eq!(server.lines().len(), 2);
    let effects = execution.effects();
    assert_eq!(
        effects.children[&id("a")].as_ref().unwrap_err().reason,
        "ChildRejected"
    );
    assert!(effects.children[&id("b")].is_ok());
    assert!(!execution.is_conflict_only());
}

#[tokio::test]
async fn a_failed_prune_keeps_the_parent_a7() {
    let refused = Answer::Say(409, "", json!({}));
    let operations = vec![prune("a"), prune("b"), Operation::RemoveFinalizer];
    let (server, execution) = run(vec![refused, ok(2)], operations).await;
    assert_eq!(server.lines().len(), 1);
    assert!(execution.is_conflict_only());
}

#[tokio::test]
async fn an_object_that_is_gone_is_pruned_and_a_parent_that_is_gone_is_released() {
    let not_found = Answer::Say(404, "", json!({}));
    let operations = vec![prune("a"), Operation::RemoveFinalizer];
    let (server, execution) = run(vec![not_found], operations).await;
    assert_eq!(server.lines().len(), 2);
    assert!(
        execution
            .results
            .iter()
            .all(|(_, result)| matches!(result, Ok(None)))
    );
}

#[tokio::test]
async fn an_existing_object_is_a_conflict_of_its_create_a6() {
    let (_server, execution) = run(vec![Answer::Say(409, "", json!({}))], vec![create("a")]).await;
    let conflicts: Vec<&ObjectId> = execution.conflicts().collect();
    assert_eq!(conflicts, [&id("a")]);
    assert!(!execution.is_conflict_only());
}

#[tokio::test]
async fn each_write_to_the_parent_is_bound_to_the_one_before_a9() {
    let server = serve(vec![ok(11), ok(12)]).await;
    let writer = server.writer(LONG, 4);
    let mut target = target();
    let write = |manager: &str, status: Value| StatusWrite {
        manager: manager.to_owned(),
        status: fields(status),
    };
    let guest = write("innkeeper:web:status", json!({"nodes": 1}));
    let host = write("innkeeper:web:host", json!({}));
    assert_eq!(
        writer
            .status(&mut target, &guest)
            .await
            .unwrap()
            .resource_version
            .0,
        11
    );
    writer.status(&mut target, &host).await.unwrap();
    assert_eq!(target.resource_version().0, 12);
    expect![[r#"
        PATCH /apis/example.dev/v1/namespaces/demo/webs/shop/status?&force=true&fieldManager=innkeeper%3Aweb%3Astatus
          application/apply-patch+yaml {"apiVersion":"example.dev/v1","kind":"Web","metadata":{"name":"shop","namespace":"demo","resourceVersion":"10","uid":"p1"},"status":{"nodes":1}}
        PATCH /apis/example.dev/v1/namespaces/demo/webs/shop/status?&force=true&fieldManager=innkeeper%3Aweb%3Ahost
          application/apply-patch+yaml {"apiVersion":"example.dev/v1","kind":"Web","metadata":{"name":"shop","namespace":"demo","resourceVersion":"11","uid":"p1"},"status":{}}
    "#]].assert_eq(&shown(&server));
}

#[tokio::test]
async fn a_lost_answer_leaves_open_whether_it_was_done_a11() {
    let outcome = async |answer, deadline| {
        let server = serve(vec![answer]).await;
        let execution = execute(&server.writer(deadline, 4), vec![update("s")]).await;
        // It is never sent again from here.
        assert_eq!(server.lines().len(), 1);
        execution.results.into_iter().next().unwrap().1.unwrap_err()
    };
    let lost = outcome(Answer::HangUp, LONG).await;
    assert!(
        lost.is_ambiguous() && matches!(lost.kind, ErrorKind::Lost),
        "{lost:?}"
    );
    let late = outcome(Answer::Silence, Duration::from_millis(300)).await;
    assert!(
        late.is_ambiguous() && matches!(late.kind, ErrorKind::TimedOut { .. }),
        "{late:?}"
    );
    let garbled = outcome(Answer::Say(200, "", json!("what?")), LONG).await;
    assert!(
        garbled.is_ambiguous() && matches!(garbled.kind, ErrorKind::Unreadable),
        "{garbled:?}"
    );
}

#[tokio::test]
async fn without_a_connection_nothing_was_done() {
    let port = {
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    };
    let execution = execute(&writer_to(port, LONG, 4), vec![update("s")]).await;
    let error = execution.results.into_iter().next().unwrap().1.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Unreachable), "{error:?}");
    assert!(!error.is_ambiguous());
}

/// L2, for each shard.
#[tokio::test]
async fn a_write_needs_the_claim_to_its_parents_shard() {
    let server = serve(vec![ok(1)]).await;
    let two = Shards::new(2).unwrap();
    // The hash of `a` is in the upper half, as that of `default`; cluster-scoped parents are the leader's.
    let [upper, lower] = [two.of(Some("a")), two.of(None)];
    assert_ne!(upper, lower);
    for (held, namespace, is_sent) in [
        (upper, Some("a"), true),
        (lower, Some("a"), false),
        (upper, None, false),
        (lower, None, true),
    ] {
        let writers = server.writers(two, |shard| shard == held);
        let written = writers.for_namespace(namespace).namespace("b").await;
        assert_eq!(written.is_ok(), is_sent, "{held} {namespace:?} {written:?}");
    }
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn a_write_that_never_gets_its_turn_was_not_sent_a10() {
    let server = serve(vec![ok(1)]).await;
    let writer = server.writer(Duration::from_millis(200), 1);
    let permit = writer.permits.acquire().await.unwrap();
    let waited = writer.namespace("a").await;
    assert!(
        matches!(&waited, Err(error) if matches!(error.kind, ErrorKind::NoPermit { .. })),
        "{waited:?}"
    );
    assert!(server.lines().is_empty());
    drop(permit);
    writer.namespace("a").await.unwrap();
}

#[tokio::test]
async fn the_hosts_own_objects_are_made_and_never_overwritten() {
    let exists = Answer::Say(409, "", json!({}));
    let server = serve(vec![exists.clone(), exists, ok(3)]).await;
    let writer = server.writer(LONG, 4);
    writer.namespace("innkeeper-system").await.unwrap();
    let data = BTreeMap::from([("key".to_owned(), b"k".to_vec())]);
    let refused = writer.secret("innkeeper-system", "hash", &data).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Exists);
    let data = BTreeMap::from([("web".to_owned(), "v1 Secret".to_owned())]);
    let observed = (Uid("i".into()), ResourceVersion(2));
    writer
        .inventory(
            "innkeeper-system",
            "inventory",
            &plugin(),
            &data,
            Some(&observed),
        )
        .await
        .unwrap();
    expect![[r#"
        PATCH /api/v1/namespaces/innkeeper-system?&fieldManager=innkeeper
          application/apply-patch+yaml {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"innkeeper-system","resourceVersion":"1"}}
        PATCH /api/v1/namespaces/innkeeper-system/secrets/hash?&fieldManager=innkeeper
          application/apply-patch+yaml {"apiVersion":"v1","data":{"key":"aw=="},"kind":"Secret","metadata":{"name":"hash","namespace":"innkeeper-system","resourceVersion":"1"}}
        PATCH /api/v1/namespaces/innkeeper-system/configmaps/inventory?&force=true&fieldManager=innkeeper%3Aweb%3Ahost
          application/apply-patch+yaml {"apiVersion":"v1","data":{"web":"v1 Secret"},"kind":"ConfigMap","metadata":{"name":"inventory","namespace":"innkeeper-system","resourceVersion":"2","uid":"i"}}
    "#]].assert_eq(&shown(&server));
}

/// The parent's status is computed from the answers, and own writes are awaited by version.
#[tokio::test]
async fn an_answer_about_another_object_or_without_end_tells_nothing() {
    let about = |kind: &str, namespace: &str, name: &str| {
        let metadata =
            json!({"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "2"});
        json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    };
    for answer in [
        about("Secret", "demo", "b"),
        about("Secret", "other", "a"),
        about("ConfigMap", "demo", "a"),
    ] {
        let (_server, execution) = run(vec![Answer::Say(200, "", answer)], vec![create("a")]).await;
        let error = execution.errors().next().unwrap();
        assert_eq!(
            (error.kind, error.is_ambiguous()),
            (ErrorKind::Unreadable, true)
        );
    }
    let endless = json!({"filler": "x".repeat(33 << 20)});
    let (_server, execution) = run(vec![Answer::Say(200, "", endless)], vec![create("a")]).await;
    let error = execution.errors().next().unwrap();
    assert_eq!((error.kind, error.is_ambiguous()), (ErrorKind::Lost, true));
}

#[tokio::test]
async fn never_shows_what_may_be_a_secret() {
    let answer = json!({
        "metadata": {"uid": "u", "resourceVersion": "2"}, "data": {"password": "c2VjcmV0"},
    });
    let (_server, execution) = run(vec![Answer::Say(201, "", answer)], vec![create("a")]).await;
    let (_, written) = &execution.results[0];
    assert!(!format!("{written:?}").contains("c2VjcmV0"));
}

#[tokio::test]
async fn without_a_claim_nothing_is_sent() {
    let server = serve(vec![ok(11)]).await;
    let claim = Claim::awaited();
    let writer = server.writer_with(claim.clone());
    let execution = execute(&writer, vec![create("a"), prune("b")]).await;
    assert!(execution.is_conflict_only(), "{execution:?}");
    assert_eq!(
        execution.results[0].1.as_ref().unwrap_err().kind,
        ErrorKind::NoClaim
    );
    assert_eq!(server.lines(), Vec::<String>::new());

    let soon = since_boot() + LONG;
    assert!(claim.hold(soon, soon));
    let execution = execute(&writer, vec![create("a")]).await;
    assert!(execution.results[0].1.is_ok(), "{execution:?}");

    claim.end();
    let execution = execute(&writer, vec![create("a")]).await;
    assert_eq!(
        execution.results[0].1.as_ref().unwrap_err().kind,
        ErrorKind::NoClaim
    );
    assert_eq!(server.lines().len(), 1);
}

#[tokio::test]
async fn a_write_under_way_ends_with_the_claim() {
    let server = serve(vec![Answer::Silence]).await;
    let claim = Claim::awaited();
    let writer = server.writer_with(claim.clone());
    let soon = since_boot() + Duration::from_millis(500);
    assert!(claim.hold(soon, soon));
    let execution = execute(&writer, vec![create("a")]).await;
    let Err(error) = &execution.results[0].1 else {
        panic!("{execution:?}");
    };
    assert!(matches!(error.kind, ErrorKind::CutOff) && error.is_ambiguous());
    assert_eq!(server.lines().len(), 1);
    assert!(!claim.is_held());
}

#[tokio::test]
async fn a_lease_is_made_only_where_there_is_none_and_replaced_only_as_it_was_seen() {
    let server = serve(vec![ok(11), ok(12)]).await;
    let writer = server.writer(LONG, 4);
    let time = |text: &str| Some(text.parse().unwrap());
    let record = LeaseRecord {
        holder: "a_1".to_owned(),
        duration_s: 15,
        acquired: time("2026-01-02T03:04:05Z"),
        renewed: time("2026-01-02T03:04:06.5Z"),
        transitions: 2,
    };
    let scope = HostScope {
        namespaces: Some(["a", "b"].map(str::to_owned).into()),
        shards: Shards::new(4).unwrap(),
        ..HostScope::default()
    };
    let created = writer
        .create_lease("inn", "keeper", &record, &scope)
        .await
        .unwrap();
    assert_eq!(created, ResourceVersion(11));
    let replaced = writer
        .update_lease("inn", "keeper", created, &record, &scope)
        .await;
    assert_eq!(replaced.unwrap(), ResourceVersion(12));
    let requests = server.requests.lock();
    let spec = json!({
        "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 2,
        "acquireTime": "2026-01-02T03:04:05.000000Z", "renewTime": "2026-01-02T03:04:06.500000Z",
    });
    for (request, version) in requests.iter().zip(["1", "11"]) {
        let path = "PATCH /apis/coordination.k8s.io/v1/namespaces/inn/leases/keeper?";
        assert!(request.line.starts_with(path), "{}", request.line);
        let metadata = &request.body["metadata"];
        assert_eq!(metadata["resourceVersion"], version);
        assert_eq!(metadata["labels"]["app.kubernetes.io/name"], "innkeeper");
        assert_eq!(metadata["annotations"]["innkeeper.dev/namespaces"], "a,b");
        assert_eq!(metadata["annotations"]["innkeeper.dev/shards"], "4");
        assert_eq!(request.body["spec"], spec);
    }
    assert!(requests[0].content_type.contains("apply-patch"));
    assert!(requests[1].content_type.contains("merge-patch"));
}
