//! Memory in calls to the shipped plugins: a call that does not grow it costs the host no system call.

use std::{fs, num::NonZeroU32, sync::Arc};

use innkeeper_model::{Limits, ListSelector, ObjectRef, Outcome, Phase, ReadFailure, Reads};
use innkeeper_sandbox::{
    CallReport, Context, Described, End, Engine, EngineSettings, ObservedChild, Plugin, Request,
    artifact,
};
use innkeeper_tests::{manifest, process::path_from_env};

use crate::config_schema::config_checker;
use serde_json::{Map, Value, json};
use wasmparser::{Parser, Payload};

const PAGE_BYTES: u64 = 65_536;

/// The peak includes the tables, which are smaller than a page.
const TABLES_BYTES_MAX: usize = 16_384;

/// A plugin and the memory before the first call.
pub(crate) struct Guest {
    pub(crate) plugin: Plugin,
    initial_bytes: usize,
}

impl Guest {
    pub(crate) fn load(name: &str) -> Self {
        let path = path_from_env("INNKEEPER_GUESTS").unwrap();
        let bytes = fs::read(path.join(name).with_extension("wasm")).unwrap();
        let settings = EngineSettings::new(NonZeroU32::MIN);
        let engine = Engine::new(&settings).unwrap();
        let limits = artifact::Limits::default();
        let artifact = artifact::compile(&engine, &bytes, &limits, None).unwrap();
        let described = Described::load(&engine, &artifact, &Limits::default()).unwrap();
        Self {
            plugin: described.configure(&Map::new(), &config_checker()).unwrap(),
            initial_bytes: initial_bytes(&bytes),
        }
    }

    /// Calls the plugin for a parent with up-to-date children and these Pods.
    fn call_settled(&self, parent: &Value, pods: &[Arc<str>]) -> CallReport {
        let stated = match self.call(parent, &[], pods).end {
            End::Answered(Outcome::Desired(desired)) => desired.children,
            // The objects that the parent references are missing here.
            End::Answered(Outcome::Keep(_)) => Vec::new(),
            other => unreachable!("{other:?}"),
        };
        let children: Vec<ObservedChild> = stated
            .into_iter()
            .map(|child| ObservedChild {
                key: Some(Arc::from(child.key)),
                retained: false,
                object: Arc::from(Value::Object(child.object).to_string()),
            })
            .collect();
        self.call(parent, &children, pods)
    }

    fn call(&self, parent: &Value, children: &[ObservedChild], pods: &[Arc<str>]) -> CallReport {
        let request = Request {
            parent: &parent.to_string(),
            children,
            phase: Phase::Reconcile,
            namespace_terminating: false,
            predict: false,
        };
        let context = Context {
            now_ms: 1_790_000_000_000,
            seed: [1; 32],
        };
        let reads = Pods(pods.to_vec());
        let called = self
            .plugin
            .call(&request, reads, &context, &Limits::default());
        called.unwrap().0
    }
}

/// The initial size of all memories in a component's modules.
fn initial_bytes(component: &[u8]) -> usize {
    let pages: u64 = Parser::new(0)
        .parse_all(component)
        .filter_map(|payload| match payload.unwrap() {
            Payload::MemorySection(memories) => Some(memories),
            _ => None,
        })
        .flat_map(|memories| memories.into_iter().map(|memory| memory.unwrap().initial))
        .sum();
    usize::try_from(pages * PAGE_BYTES).unwrap()
}

/// Shows these Pods and nothing else.
struct Pods(Vec<Arc<str>>);

impl Reads for Pods {
    fn get(&mut self, _: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure> {
        Ok(None)
    }

    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure> {
        Ok(match &*selector.kind.kind {
            "Pod" => self.0.clone(),
            _ => Vec::new(),
        })
    }
}

fn pod(index: usize) -> Arc<str> {
    let name = format!("example-{index:05}");
    let metadata = json!({ "name": name, "namespace": "default", "uid": name });
    Arc::from(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata }).to_string())
}

/// A parent as the API server stores it.
fn parent(file: &str, kind: &str) -> Value {
    let mut parent = manifest::load(file)
        .unwrap()
        .into_iter()
        .find(|object| object["kind"] == kind)
        .unwrap();
    parent["metadata"]["namespace"] = json!("default");
    parent["metadata"]["uid"] = json!("11111111-2222-4333-8444-555555555555");
    parent["metadata"]["generation"] = json!(1);
    parent["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    parent
}

#[test]
fn a_usual_call_of_a_shipped_plugin_does_not_grow_its_memory() {
    for (name, file, kind) in [
        (
            "memcached",
            "examples/memcached/03-highly-available.yaml",
            "Memcached",
        ),
        (
            "wordpress",
            "examples/wordpress/01-article.yaml",
            "Wordpress",
        ),
        ("etcd", "examples/etcd/01-article.yaml", "EtcdCluster"),
        (
            "backup",
            "examples/backup/02-article-cron.yaml",
            "CronBackup",
        ),
    ] {
        let guest = Guest::load(name);
        let pods: Vec<_> = (0..3).map(pod).collect();
        let called = guest.call_settled(&parent(file, kind), &pods);
        let grown = called.memory_peak_bytes - guest.initial_bytes;
        assert!(grown < TABLES_BYTES_MAX, "{name}: {grown}");
    }
}

#[test]
fn a_call_with_much_input_grows_its_memory_and_answers() {
    let guest = Guest::load("memcached");
    let pods: Vec<_> = (0..20_000).map(pod).collect();
    let called = guest.call_settled(
        &parent("examples/memcached/01-article.yaml", "Memcached"),
        &pods,
    );
    let End::Answered(Outcome::Desired(desired)) = called.end else {
        panic!("{:?}", called.end);
    };
    let status = desired.report.status.unwrap();
    assert_eq!(status["nodes"].as_array().unwrap().len(), pods.len());
    let grown = called.memory_peak_bytes - guest.initial_bytes;
    assert!(grown > TABLES_BYTES_MAX, "{grown}");
}
