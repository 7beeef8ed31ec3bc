//! A kube-rs operator that does the memcached plugin's job.
//!
//! It is built from the parts that make up `Controller` (`applier` with triggers), so that each kind is watched once,
//! into a store that reconciles read; with `Controller` itself this needs unstable kube features. It applies a child only
//! if the store shows a difference, and the status only if it changed. It runs in a separate process, and prints how
//! often it reconciled when it exits.

mod children;

use std::{
    fmt::Debug,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use futures::{FutureExt as _, StreamExt as _, future, stream, stream::BoxStream};
use http::{HeaderValue, header::USER_AGENT};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Service},
    },
};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::{PartialObjectMeta, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        Predicate as _, PredicateConfig, WatchStreamExt as _, applier,
        controller::{self, Action, ReconcileRequest, trigger_owners, trigger_self, trigger_with},
        events::{Event, EventType, Recorder},
        predicates,
        reflector::{self, ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::OnceCell,
    task::JoinError,
};

use self::children::{INSTANCE, OURS, Pool, ZERO_REQUESTED, covers};
use crate::api::{Memcached, MemcachedStatus};

/// The field manager for all writes.
const MANAGER: &str = "memcached-operator";
/// The user agent, which identifies the operator in the audit log.
pub(crate) const AGENT: &str = "bench-kube-rs";

/// A failed reconcile.
#[derive(Debug)]
enum Error {
    Request(kube::Error),
    Encode(serde_json::Error),
    Store(reflector::store::WriterDropped),
    Task(JoinError),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(error) => write!(f, "a request failed: {error}"),
            Self::Encode(error) => write!(f, "an object is no JSON: {error}"),
            Self::Store(error) => write!(f, "a watch has ended: {error}"),
            Self::Task(error) => write!(f, "a reconcile died: {error}"),
        }
    }
}

impl std::error::Error for Error {}

struct Context {
    client: Client,
    deployments: Store<Deployment>,
    services: Store<Service>,
    pods: Store<PartialObjectMeta<Pod>>,
    events: Recorder,
    /// Set once all stores are filled. All reconciles share one cell, because a store wakes only its last waiter.
    filled: OnceCell<()>,
    reconciles: AtomicU64,
}

/// Runs until SIGTERM. With a namespace, it watches only that one: one of several operators with separate objects.
#[expect(clippy::print_stdout, reason = "the bench reads the count")]
pub(crate) fn main(kubeconfig: &Path, concurrency: u16, namespace: Option<&str>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let reconciles = runtime.block_on(run(kubeconfig, concurrency, namespace))?;
    println!("reconciles {reconciles}");
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the peer is no part of the product"
)]
async fn run(kubeconfig: &Path, concurrency: u16, namespace: Option<&str>) -> Result<u64> {
    let mut terminated = signal(SignalKind::terminate())?;
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let agent = HeaderValue::from_static(AGENT);
    config.headers.push((USER_AGENT, agent));
    let client = Client::try_from(config)?;

    let (parents, parents_writer) = reflector::store();
    let (deployments, deployments_writer) = reflector::store();
    let (services, services_writer) = reflector::store();
    let (pods, pods_writer) = reflector::store();
    let queue = stream::select_all([
        declared(api(&client, namespace), parents_writer),
        owned::<Deployment>(api(&client, namespace), deployments_writer),
        owned::<Service>(api(&client, namespace), services_writer),
        observed(api(&client, namespace), pods_writer),
    ]);
    let context = Arc::new(Context {
        events: Recorder::new(client.clone(), MANAGER.into()),
        client,
        deployments,
        services,
        pods,
        filled: OnceCell::new(),
        reconciles: AtomicU64::new(0),
    });
    // `Controller` also spawns, so that reconciles run on all threads.
    let reconcile = |parent, context| {
        tokio::spawn(reconcile(parent, context))
            .map(|joined| joined.unwrap_or_else(|error| Err(Error::Task(error))))
    };
    let error_policy = |_, _: &Error, _| Action::requeue(Duration::from_secs(1));
    let config = controller::Config::default().concurrency(concurrency);
    let loops = applier(
        reconcile,
        error_policy,
        Arc::clone(&context),
        parents,
        queue,
        config,
    )
    .for_each(|done| {
        if let Err(error) = done {
            eprintln!("error: {error}");
        }
        future::ready(())
    });
    tokio::select! {
        () = loops => {}
        _ = terminated.recv() => {}
    }
    Ok(context.reconciles.load(Ordering::Relaxed))
}

type Requests = BoxStream<'static, Result<ReconcileRequest<Memcached>, watcher::Error>>;

/// The API for a kind, in one namespace or in all.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Requests for parents whose generation or annotations changed.
fn declared(api: Api<Memcached>, writer: Writer<Memcached>) -> Requests {
    let changed = watcher(api, watcher::Config::default())
        .default_backoff()
        .modify(|parent| parent.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects()
        .predicate_filter(
            predicates::generation.combine(predicates::annotations),
            PredicateConfig::default(),
        );
    trigger_self(changed, ()).boxed()
}

/// Requests for the owners of a kind's changed children.
fn owned<K>(api: Api<K>, writer: Writer<K>) -> Requests
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let changed = watcher(api, watcher::Config::default().labels(OURS))
        .default_backoff()
        .modify(|child| child.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    trigger_owners(changed, (), ()).boxed()
}

/// Requests for the parents of changed Pods.
fn observed(api: Api<PartialObjectMeta<Pod>>, writer: Writer<PartialObjectMeta<Pod>>) -> Requests {
    let changed = watcher(api, watcher::Config::default().labels(OURS))
        .default_backoff()
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects();
    trigger_with(changed, |pod: PartialObjectMeta<Pod>| {
        let name = pod.labels().get(INSTANCE)?;
        let namespace = pod.namespace().unwrap_or_default();
        Some(ObjectRef::<Memcached>::new(name).within(&namespace))
    })
    .boxed()
}

async fn reconcile(parent: Arc<Memcached>, context: Arc<Context>) -> Result<Action, Error> {
    context.reconciles.fetch_add(1, Ordering::Relaxed);
    let Context {
        deployments,
        services,
        pods,
        ..
    } = &*context;
    let filled = context.filled.get_or_try_init(async || {
        deployments.wait_until_ready().await?;
        services.wait_until_ready().await?;
        pods.wait_until_ready().await
    });
    filled.await.map_err(Error::Store)?;

    let pool = Pool::new(&parent);
    let deployment = context.keep(deployments, pool.deployment()).await?;
    context.keep(services, pool.service()).await?;
    let mut nodes: Vec<String> = pods
        .state_filter(|pod| pool.has(pod))
        .iter()
        .map(|pod| pod.name_any())
        .collect();
    nodes.sort_unstable();
    context
        .report(&parent, pool.status(&deployment, nodes))
        .await?;
    // The kube documentation recommends a requeue, because a watch can miss a change.
    Ok(Action::requeue(Duration::from_hours(1)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the peer is no part of the product"
)]
impl Context {
    /// Applies a child, unless the stored object has all wanted fields.
    async fn keep<K>(&self, store: &Store<K>, wanted: K) -> Result<Arc<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize
            + 'static,
    {
        let encoded = serde_json::to_value(&wanted).map_err(Error::Encode)?;
        if let Some(stored) = store.get(&ObjectRef::from_obj(&wanted)) {
            let shown = serde_json::to_value(&*stored).map_err(Error::Encode)?;
            if covers(&shown, &encoded) {
                return Ok(stored);
            }
        }
        let namespace = wanted.namespace().unwrap_or_default();
        let api = Api::<K>::namespaced(self.client.clone(), &namespace);
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&wanted.name_any(), &params, &Patch::Apply(&encoded))
            .await
            .map(Arc::new)
            .map_err(Error::Request)
    }

    /// Applies the status if it changed, and publishes an event when the parent is scaled to zero.
    async fn report(&self, parent: &Memcached, status: MemcachedStatus) -> Result<(), Error> {
        let stored = parent.status.as_ref();
        if stored == Some(&status) {
            return Ok(());
        }
        let name = parent.name_any();
        let namespace = parent.namespace().unwrap_or_default();
        let patch = json!({
            "apiVersion": Memcached::api_version(&()),
            "kind": Memcached::kind(&()),
            "metadata": { "name": name },
            "status": status,
        });
        let params = PatchParams::apply(MANAGER).force();
        Api::<Memcached>::namespaced(self.client.clone(), &namespace)
            .patch_status(&name, &params, &Patch::Apply(&patch))
            .await
            .map_err(Error::Request)?;
        let message =
            |status: &MemcachedStatus| status.condition("Ready").map(|ready| ready.message.clone());
        let earlier = stored.and_then(message);
        if message(&status).as_deref() == Some(ZERO_REQUESTED)
            && earlier.as_deref() != Some(ZERO_REQUESTED)
        {
            let event = Event {
                type_: EventType::Normal,
                reason: "ScaledToZero".to_owned(),
                note: Some(ZERO_REQUESTED.to_owned()),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            self.events
                .publish(&event, &parent.object_ref(&()))
                .await
                .map_err(Error::Request)?;
        }
        Ok(())
    }
}
