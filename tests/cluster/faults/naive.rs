//! The known-bad controller: a short kube-rs `Controller` for the memcached task, with `owns`,
//! which applies every child in every pass.
//!
//! It works without faults. It must fail where watches lose deletions or go back in time; otherwise
//! the harness detects nothing there.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt as _, future};
use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const MANAGER: &str = "naive";

/// A running controller; dropping it stops the controller.
pub(crate) struct Naive {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    log: Arc<Mutex<String>>,
}

impl Naive {
    pub(crate) fn start(kubeconfig: PathBuf) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let log = Arc::new(Mutex::new(String::new()));
        let writing = Arc::clone(&log);
        let thread = thread::spawn(move || {
            let result = runtime.block_on(async {
                tokio::select! {
                    result = run(kubeconfig, &writing) => result,
                    // Stopped, or the sender was dropped.
                    _ = stopped => Ok(()),
                }
            });
            if let Err(error) = result {
                note(&writing, &format!("{error:#}"));
            }
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            log,
        })
    }

    pub(crate) fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        self.stop = None;
        // The test's output already shows a panic in the thread.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn note(log: &Mutex<String>, line: &str) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(line);
    log.push('\n');
}

struct Context {
    client: Client,
}

async fn run(kubeconfig: PathBuf, log: &Mutex<String>) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let agent = HeaderValue::from_static(MANAGER);
    config.headers.push((USER_AGENT, agent));
    let client = Client::try_from(config)?;
    let all = |kind: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), kind);
    let parents = resource("cache.example.com", "v1", "Memcached");
    let mut controller =
        Controller::new_with(all(&parents), watcher::Config::default(), parents.clone());
    for kind in [
        resource("apps", "v1", "Deployment"),
        resource("", "v1", "Service"),
        resource("policy", "v1", "PodDisruptionBudget"),
    ] {
        controller = controller.owns_with(all(&kind), kind, watcher::Config::default());
    }
    let context = Arc::new(Context {
        client: client.clone(),
    });
    controller
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            context,
        )
        .for_each(|done| {
            if let Err(error) = done {
                note(log, &error.to_string());
            }
            future::ready(())
        })
        .await;
    Ok(())
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this controller is no part of the product"
)]
async fn reconcile(
    parent: Arc<DynamicObject>,
    context: Arc<Context>,
) -> Result<Action, kube::Error> {
    let namespace = parent.namespace().unwrap_or_default();
    let (desired, undesired) = children(&parent);
    for child in desired {
        let api = api(&context, &namespace, &child);
        let name = parent.name_any();
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(&child)).await?;
    }
    for child in undesired {
        let api = api(&context, &namespace, &child);
        match api.delete(&parent.name_any(), &Default::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(Action::await_change())
}

fn api(context: &Context, namespace: &str, child: &Value) -> Api<DynamicObject> {
    let text = |field: &str| child[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", "v1"));
    let kind = resource(group, version, text("kind"));
    Api::namespaced_with(context.client.clone(), namespace, &kind)
}

/// Children that a parent needs, and those that it must not have.
fn children(parent: &DynamicObject) -> (Vec<Value>, Vec<Value>) {
    let name = parent.name_any();
    let labels = json!({ "app": name });
    let metadata = json!({
        "name": name, "labels": labels,
        "ownerReferences": [{
            "apiVersion": "cache.example.com/v1", "kind": "Memcached", "name": name,
            "uid": parent.uid(), "controller": true, "blockOwnerDeletion": true,
        }],
    });
    let container = json!({ "name": "memcached", "image": "memcached:1" });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": parent.data["spec"]["size"],
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [container] },
            },
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": { "selector": labels, "ports": [{ "port": 11211 }] },
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": labels } },
    });
    if parent.data["spec"]["highAvailability"].is_object() {
        (vec![deployment, service, budget], Vec::new())
    } else {
        (vec![deployment, service], vec![budget])
    }
}
