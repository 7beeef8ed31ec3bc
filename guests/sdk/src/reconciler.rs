//! The trait that a plugin implements; [`export!`](crate::export!) exports it.
//!
//! Nothing here knows about WebAssembly: a reconciler is plain Rust and is tested as such.

use kube::Resource;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{Answer, Report};
use crate::config;
use crate::context::Context;
use crate::fault::Fault;
use crate::host::Host;
use crate::kinds::ChildKinds;
use crate::manifest::Manifest;
use crate::prediction::{Prediction, WatchedHost, predict};
use crate::request::{PARENT_BYTES_MAX, Phase, Request};

/// Reconciles one kind of parent: computes the desired children of one parent at a time.
///
/// # Expected flow
///
/// The host calls [`describe`](Self::describe) once when it loads the plugin.
/// It calls [`reconcile`](Self::reconcile) whenever a parent, a child or an object that an earlier pass
/// read has changed, each time in a new instance.
///
/// # Guarantees
///
/// The host writes no child before `reconcile` has returned. A fault or a panic leaves all children unchanged.
///
/// # Assumptions
///
/// The same request and the same answers to reads give the same answer. It must not depend on a static variable or on
/// the order of a hash map.
pub trait Reconciler: Sized {
    /// The parent, as `reconcile` reads it.
    type Parent: Parent;

    /// The kinds of children, see [`child_kinds!`](crate::child_kinds!). The manifest gets them.
    type Children: ChildKinds;

    /// The plugin's configuration, whose schema the manifest gets; [`NoConfig`] for none.
    type Config: Config;

    /// A parent's maximum size in JSON bytes, without metadata and status. Raise it for kinds whose purpose is
    /// data, such as ConfigMaps.
    const PARENT_BYTES_MAX: usize = PARENT_BYTES_MAX;

    /// Returns the plugin's identity, parents, reads and untyped children; the same in each call.
    fn describe() -> Manifest;

    /// Runs one pass for one parent.
    ///
    /// # Errors
    ///
    /// Returns a [`Fault`] if there is no answer. The kind decides when the next pass runs.
    fn reconcile(parent: &Self::Parent, cx: &Context<'_, Self>) -> Result<Answer, Fault>;

    /// Runs one pass for a parent that is being deleted and waits for this plugin.
    ///
    /// The host calls it only if the manifest sets [`Manifest::finalize`].
    /// By default, the parent is deleted at once.
    ///
    /// # Errors
    ///
    /// Returns a [`Fault`] as [`reconcile`](Self::reconcile) does; the parent stays.
    fn finalize(_parent: &Self::Parent, _cx: &Context<'_, Self>) -> Result<Answer, Fault> {
        Ok(Answer::finalized(Report::new()))
    }
}

/// A parent as a reconciler reads it: any kube derive or k8s-openapi type.
pub trait Parent: DeserializeOwned {
    /// Returns whether the request's parent is of this kind, in any version.
    fn is_parent_of(request: &Request) -> bool;
}

impl<T: Resource<DynamicType = ()> + DeserializeOwned> Parent for T {
    fn is_parent_of(request: &Request) -> bool {
        request.is_parent::<T>()
    }
}

/// A configuration: any type with a schema, or [`NoConfig`].
///
/// Derive `Serialize` and `Deserialize` with `#[serde(default, deny_unknown_fields)]`: the schema then has the defaults,
/// and the host refuses a misspelt key.
pub trait Config: DeserializeOwned {
    /// Returns the schema in the form that the host accepts, that of CustomResourceDefinitions: options are `nullable`,
    /// and enums have no data.
    ///
    /// # Panics
    ///
    /// Panics if the type has no such schema, because it contains itself or an enum with data. So call
    /// `Plugin::describe` in a unit test.
    fn schema() -> Option<Value>;
}

impl<T: DeserializeOwned + JsonSchema> Config for T {
    fn schema() -> Option<Value> {
        Some(config::schema_of::<T>())
    }
}

/// The configuration of a plugin that has none.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct NoConfig {}

impl Config for NoConfig {
    fn schema() -> Option<Value> {
        None
    }
}

#[doc(hidden)]
/// Returns a reconciler's manifest, with the kinds and the schema from the types.
pub fn describe<R: Reconciler>() -> Manifest {
    let mut manifest = R::describe();
    let mut children = R::Children::kinds();
    children.append(&mut manifest.children);
    manifest.children = children;
    manifest.config_schema = R::Config::schema();
    manifest
}

/// An answer, and the next report if it was predicted.
pub type Predicting = (Answer, Option<Prediction>);

#[doc(hidden)]
/// Runs a pass if the parent is of the reconciler's kind, and predicts the next report on request.
pub fn run<R: Reconciler>(
    request: &Request,
    host: &dyn Host,
    predicts: bool,
) -> Option<Result<Predicting, Fault>> {
    R::Parent::is_parent_of(request).then(|| {
        let parent = request.parent_within::<R::Parent>(R::PARENT_BYTES_MAX)?;
        let host = WatchedHost::new(host);
        let cx = Context::new(request, &host)?;
        let pass = |cx: &Context<'_, R>| match cx.phase {
            Phase::Reconcile => R::reconcile(&parent, cx),
            Phase::Finalize => R::finalize(&parent, cx),
        };
        let answer = pass(&cx)?;
        let prediction = match &answer {
            // The next call may answer differently.
            Answer::Desired(desired) if predicts && !host.is_unique() => {
                predict(request, &host, desired, |next, host| {
                    pass(&cx.with_request(next, host))
                })
            }
            _ => None,
        };
        Ok((answer, prediction))
    })
}
