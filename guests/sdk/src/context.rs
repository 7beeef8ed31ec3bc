//! The context of one pass.

use std::fmt;
use std::ops::Deref;

use kube::Resource;
use serde::Serialize;

use crate::child::Child;
use crate::fault::Fault;
use crate::host::Host;
use crate::kinds::{ChildKinds, Includes};
use crate::reconciler::Reconciler;
use crate::request::Request;

/// The context of one pass: the request, the host, and the plugin's configuration.
///
/// It dereferences to the [`Request`], so `cx.name()` is the parent's name and `cx.children` the observed children.
pub struct Context<'a, R: Reconciler> {
    request: &'a Request,
    host: &'a dyn Host,
    config: R::Config,
}

impl<'a, R: Reconciler> Context<'a, R> {
    pub(crate) fn new(request: &'a Request, host: &'a dyn Host) -> Result<Self, Fault> {
        Ok(Self {
            request,
            host,
            config: request.config()?,
        })
    }

    /// The context of another request with the same configuration.
    pub(crate) fn with_request<'b>(
        self,
        request: &'b Request,
        host: &'b dyn Host,
    ) -> Context<'b, R> {
        Context {
            request,
            host,
            config: self.config,
        }
    }

    /// The request with the parent and the observed children.
    pub const fn request(&self) -> &'a Request {
        self.request
    }

    /// The host: log, time, random bytes and reads.
    pub const fn host(&self) -> &'a dyn Host {
        self.host
    }

    /// The plugin's configuration.
    pub const fn config(&self) -> &R::Config {
        &self.config
    }

    /// Returns a child with the default policies: applied as stated, deleted with the parent, readiness derived
    /// by the host.
    ///
    /// A kind that is not in [`Reconciler::Children`] does not compile. [`Child::untyped`] takes any object.
    ///
    /// # Panics
    ///
    /// Panics if the object cannot be written as JSON, such as a map whose keys are not strings.
    pub fn child<T: Resource<DynamicType = ()> + Serialize>(
        &self,
        key: impl Into<String>,
        object: &T,
    ) -> Child
    where
        R::Children: Includes<T>,
    {
        R::Children::child(key, object)
    }
}

impl<R: Reconciler> Deref for Context<'_, R> {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request
    }
}

impl<R: Reconciler> fmt::Debug for Context<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
