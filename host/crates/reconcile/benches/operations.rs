//! Benchmarks queue and cache alone, with 100,000 parents and objects, without passes or network.

use std::{hint::black_box, time::Duration};

use anyhow::ensure;
use criterion::{BatchSize, BenchmarkGroup, Criterion, measurement::WallTime};
use innkeeper_cluster::testing::ObjectCache;
use innkeeper_model::{GroupKind, Gvk, ObjectId};
use innkeeper_reconcile::Next;
use innkeeper_reconcile::controller::queue::{Class, Queue};
use serde_json::{Value, json};

/// The number of queued keys and cached objects, as for the figures in host/docs/performance.md.
const COUNT: usize = 100_000;

/// An object's JSON size in bytes, as in the target for events.
const OBJECT_BYTES: usize = 5 * 1024;

fn main() -> anyhow::Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("queue");
    waiting(&mut group);
    delayed(&mut group);
    group.finish();
    let mut group = criterion.benchmark_group("cache");
    events(&mut group)?;
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn key(number: usize) -> ObjectId {
    let name = format!("cache-{number:06}");
    ObjectId::new(
        GroupKind::new("cache.example.com", "Memcached"),
        Some("demo"),
        &name,
    )
}

/// Measures one trigger, pass and end; the triggered key is queued behind all the others.
fn waiting(group: &mut BenchmarkGroup<'_, WallTime>) {
    let mut queue = Queue::new(0, |key: &ObjectId| key.namespace.clone());
    let mut now = Duration::ZERO;
    for number in 0..COUNT {
        queue.trigger(key(number), Class::Child, now);
    }
    group.bench_function("enqueue and dequeue, 100,000 keys wait", |bencher| {
        bencher.iter(|| {
            now += Duration::from_micros(1);
            if let Some(ticket) = queue.pop(now) {
                queue.done(&ticket.key, Next::Settled, now);
                queue.trigger(ticket.key, Class::Child, now);
            }
        });
    });
    assert_eq!(queue.depth(), COUNT, "every key should be queued");
}

/// Measures one trigger, pass and end; each key is due in ten hours.
fn delayed(group: &mut BenchmarkGroup<'_, WallTime>) {
    /// The host's default resync period.
    const LATER: Duration = Duration::from_hours(10);

    let mut queue = Queue::new(0, |key: &ObjectId| key.namespace.clone());
    let mut now = Duration::ZERO;
    for number in 0..COUNT {
        queue.trigger(key(number), Class::Child, now);
        if let Some(ticket) = queue.pop(now) {
            queue.done(&ticket.key, Next::RequeueAfter(LATER), now);
        }
    }
    let mut keys = (0..COUNT).map(key).collect::<Vec<_>>().into_iter().cycle();
    group.bench_function(
        "enqueue and dequeue, 100,000 keys are due later",
        |bencher| {
            bencher.iter(|| {
                now += Duration::from_micros(1);
                let key = keys.next().expect("the iterator should never end");
                queue.trigger(key, Class::User, now);
                if let Some(ticket) = queue.pop(now) {
                    queue.done(&ticket.key, Next::RequeueAfter(LATER), now);
                }
            });
        },
    );
}

/// Measures one event of a watch, which changes the status of one object.
fn events(group: &mut BenchmarkGroup<'_, WallTime>) -> anyhow::Result<()> {
    let mut cache = ObjectCache::new(Gvk::new("", "v1", "Pod"));
    let mut version = 0;
    // Lines from one text, because freeing thousands of JSON values would slow the allocator down.
    let template = json!({"type": "KIND", "object": pod()}).to_string();
    let mut line = |kind| {
        version += 1;
        let [number, group] = [1, 3].map(|size| format!("{:06}", version % COUNT / size));
        template
            .replace("KIND", kind)
            .replace("NUMBER", &number)
            .replace("GROUP", &group)
            .replace("TEAM", &number[4..])
            .replace("VERSION", &version.to_string())
    };
    for _ in 0..COUNT {
        cache.take(&line("ADDED"))?;
    }
    ensure!(cache.len() == COUNT, "{} objects are cached", cache.len());
    let bytes = line("MODIFIED").len();
    ensure!(
        bytes.abs_diff(OBJECT_BYTES) <= OBJECT_BYTES / 50,
        "an object has {bytes} bytes"
    );
    let mut shown = true;
    group.bench_function("an event of 5 KB, 100,000 objects", |bencher| {
        bencher.iter_batched_ref(
            || line("MODIFIED"),
            |line| shown &= cache.take(black_box(line)).is_ok_and(|shown| shown),
            BatchSize::SmallInput,
        );
    });
    ensure!(shown, "an event was no change");
    ensure!(cache.len() == COUNT, "{} objects are cached", cache.len());
    Ok(())
}

/// Returns a Pod as API servers return it, with words in capitals for the parts that differ.
fn pod() -> Value {
    let containers: Vec<Value> = (0..3).map(container).collect();
    let statuses: Vec<Value> = (0..3).map(status).collect();
    let conditions = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| {
            json!({
                "type": kind, "status": "True", "observedGeneration": 1,
                "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:07Z",
            })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-NUMBER",
            "generateName": "web-",
            "namespace": "team-TEAM",
            "uid": "00000000-0000-4000-8000-000000NUMBER",
            "resourceVersion": "VERSION",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-GROUP"},
            "annotations": {
                "example.com/checked-at": "2026-01-01T00:00:00Z",
                "example.com/note": "n".repeat(220),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true,
                "uid": "11111111-0000-4000-8000-000000GROUP",
            }],
            "managedFields": [
                manager("kube-controller-manager", "f:spec", "f:containers"),
                manager("kubelet", "f:status", "f:containerStatuses"),
            ],
        },
        "spec": {
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "default",
            "nodeName": "node-TEAM",
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.2.3", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z", "conditions": conditions, "containerStatuses": statuses,
        },
    })
}

fn container(number: usize) -> Value {
    json!({
        "name": format!("web-{number}"),
        "image": "registry.example.com/web:1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "LEVEL", "value": "info"}, {"name": "PORT", "value": "8080"}],
        "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
        "imagePullPolicy": "IfNotPresent",
    })
}

fn status(container: usize) -> Value {
    json!({
        "name": format!("web-{container}"),
        "image": "registry.example.com/web:1.2.3",
        "imageID": "registry.example.com/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "ready": true, "started": true, "restartCount": 1,
        "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "exit at VERSION"}},
    })
}

fn manager(name: &str, part: &str, list: &str) -> Value {
    let fields: serde_json::Map<String, Value> = (0..3)
        .map(|container| {
            (
                format!("k:{{\"name\":\"web-{container}\"}}"),
                json!({".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}),
            )
        })
        .collect();
    json!({
        "manager": name, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": {part: {list: fields}},
    })
}
