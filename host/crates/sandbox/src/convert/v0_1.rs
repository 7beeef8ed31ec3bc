//! Contract version 0.1.0 to and from `model`.

mod answer;
mod describe;
#[cfg(any(test, feature = "testing"))]
#[path = "../tests/stated.rs"]
mod stated;

use std::time::Instant;

use innkeeper_model::{
    Access, ApplyPolicy, ConditionStatus, EventType, FaultKind, Limits, Manifest, Phase, ReadScope,
    Readiness, RemovalPolicy, Scope,
};
use wasmtime::{
    Store,
    component::{
        Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Linker, Lower,
    },
};

use super::{Adapter, Answer, Rejected, same_cases};
use crate::{
    Error, Request,
    bindings::v0_1::{self as bindings, innkeeper::plugin::types as wit},
    log::LogLevel,
    state::{ReadRefusal, StoreState},
    wasi,
};

/// The version as imports and exports name it.
pub(super) const VERSION: &str = "0.1.0";

const RECONCILER: &str = "innkeeper:plugin/reconciler@0.1.0";

/// A component with this version, linked, with exports looked up.
pub(super) struct V0_1 {
    pre: InstancePre<StoreState>,
    describe: ComponentExportIndex,
    reconcile: ComponentExportIndex,
}

/// The record `request`, borrowed. Bindgen's type owns the texts, so that every call would copy all objects.
#[derive(ComponentType, Lower)]
#[component(record)]
struct LoweredRequest<'a> {
    parent: &'a str,
    children: &'a [LoweredChild<'a>],
    config: &'a str,
    phase: wit::Phase,
    #[component(name = "namespace-terminating")]
    namespace_terminating: bool,
    predict: bool,
}

/// `observed-child`, borrowed.
#[derive(ComponentType, Lower)]
#[component(record)]
struct LoweredChild<'a> {
    key: Option<&'a str>,
    retained: bool,
    object: &'a str,
}

same_cases! {
    Phase => wit::Phase { Reconcile, Finalize }
    wit::ApplyPolicy => ApplyPolicy { Always, Once, Hold }
    wit::RemovalPolicy => RemovalPolicy { Delete, Retain }
    wit::Readiness => Readiness { Derive, Ready, NotReady }
    wit::ConditionStatus => ConditionStatus { True, False, Unknown }
    wit::EventType => EventType { Normal, Warning }
    wit::FaultKind => FaultKind { Retry, Invalid, Fatal }
    wit::Scope => Scope { Namespaced, Cluster }
    wit::Access => Access { Full, Metadata, Hash }
    wit::ReadScope => ReadScope { ParentNamespace, Cluster }
    wit::LogLevel => LogLevel { Error, Warn, Info, Debug }
    ReadRefusal => wit::ReadError { NotGranted, NotServed }
}

type DescribeResults = (wit::Manifest,);
type ReconcileResults = (Result<wit::Outcome, wit::Fault>,);

impl V0_1 {
    pub(super) fn new(
        linker: &mut Linker<StoreState>,
        component: &Component,
    ) -> wasmtime::Result<Self> {
        bindings::link(linker)?;
        wasi::link(linker, component)?;
        let reconciler = component.get_export_index(None, RECONCILER);
        let export = |name: &str| {
            let index = reconciler
                .and_then(|reconciler| component.get_export_index(Some(&reconciler), name));
            index.ok_or_else(|| wasmtime::format_err!("{RECONCILER} has no function {name}"))
        };
        Ok(Self {
            describe: export("describe")?,
            reconcile: export("reconcile")?,
            // Resolves the imports once for all calls.
            pre: linker.instantiate_pre(component)?,
        })
    }

    fn instantiate(&self, store: &mut Store<StoreState>) -> wasmtime::Result<Instance> {
        let instance = self.pre.instantiate(&mut *store)?;
        // From here on, clock and random bytes come from the pass.
        store.data_mut().instantiated_at = Some(Instant::now());
        Ok(instance)
    }
}

impl Adapter for V0_1 {
    fn version(&self) -> &'static str {
        VERSION
    }

    fn describe(&self, store: &mut Store<StoreState>) -> wasmtime::Result<Result<Manifest, Error>> {
        let instance = self.instantiate(store)?;
        // Both functions are compared with the types of the contract now, so that a difference refuses the load and not
        // the first pass.
        let reconcile = instance
            .get_typed_func::<(LoweredRequest<'_>,), ReconcileResults>(&mut *store, self.reconcile);
        let describe = instance.get_typed_func::<(), DescribeResults>(&mut *store, self.describe);
        let describe = match reconcile.and(describe) {
            Ok(describe) => describe,
            Err(error) => return Ok(Err(Error::Link(error))),
        };
        let (manifest,) = describe.call(&mut *store, ())?;
        store.data_mut().answered_at = Some(Instant::now());
        Ok(describe::manifest(manifest).map_err(|error| Error::Manifest(Box::new(error))))
    }

    fn reconcile(
        &self,
        store: &mut Store<StoreState>,
        request: &Request<'_>,
        config: &str,
        limits: &Limits,
    ) -> wasmtime::Result<Result<Answer, Rejected>> {
        let reconcile = self
            .instantiate(store)?
            .get_typed_func::<(LoweredRequest<'_>,), ReconcileResults>(
                &mut *store,
                self.reconcile,
            )?;
        let children: Vec<LoweredChild<'_>> = request
            .children
            .iter()
            .map(|child| LoweredChild {
                key: child.key.as_deref(),
                retained: child.retained,
                object: &child.object,
            })
            .collect();
        let lowered = LoweredRequest {
            parent: request.parent,
            children: &children,
            config,
            phase: request.phase.into(),
            namespace_terminating: request.namespace_terminating,
            predict: request.predict,
        };
        let (mut answer,) = reconcile.call(&mut *store, (lowered,))?;
        // A prediction that nobody has asked for might be a leftover of the call that faulted over it.
        if let Ok(wit::Outcome::Desired(desired)) = &mut answer
            && !request.predict
        {
            desired.prediction = None;
        }
        store.data_mut().answered_at = Some(Instant::now());
        Ok(answer::answer(answer, request.phase, limits))
    }
}

/// Converts an answer that is given as JSON; none if it is none.
#[cfg(any(test, feature = "testing"))]
pub(super) fn stated(
    answer: &serde_json::Value,
    phase: Phase,
    limits: &Limits,
) -> Option<Result<Answer, Rejected>> {
    stated::answer(answer).map(|answer| answer::answer(answer, phase, limits))
}
