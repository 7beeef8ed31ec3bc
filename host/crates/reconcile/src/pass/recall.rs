//! Recall: the passes that need no call, because an earlier pass of the same revision answers for them.

use innkeeper_model::{Object, Phase, ResourceVersion, Resources as _};
use tracing::debug;

use super::{
    enter::Entered,
    state::{Pass, Step},
};
use crate::{memory::Inputs, next::Next, pass::skip::Stop};

/// A pass that needs its call.
pub(crate) struct Recalled {
    pub(super) entered: Entered,
    /// The inputs besides the parent and the reads, if the pass may be remembered.
    pub(super) inputs: Option<Inputs>,
}

impl<'a> Pass<'a, Entered> {
    /// Stops the pass if the guest has given the parent up, or if the last pass had the same inputs and wrote nothing.
    ///
    /// A call that an observer has ordered is made all the same.
    pub(super) fn recall(self) -> Step<'a, Pass<'a, Recalled>> {
        let inputs = self.inputs();
        let context = self.context;
        let recordings = &context.shared.recordings;
        if recordings.want_call(&context.plugin, self.id) {
            return Ok(self.advance(|entered| Recalled { entered, inputs }));
        }
        if let Some(next) = inputs.as_ref().and_then(|inputs| self.skip(inputs)) {
            return Err(self.stop_entered(Stop::Unchanged(next)));
        }
        let entered = &self.state;
        if entered.phase == Phase::Reconcile
            && let Some(synced) = self
                .epoch
                .given_up
                .condition_of(&entered.observation.parent)
        {
            return Err(self.stop_entered(Stop::GivenUp(synced)));
        }
        Ok(self.advance(|entered| Recalled { entered, inputs }))
    }

    /// Returns the inputs of the pass besides the parent and the reads; none if passes are not remembered.
    fn inputs(&self) -> Option<Inputs> {
        if !self.context.shared.remember_passes {
            return None;
        }
        let (plugin, entered) = (&self.epoch.serving.plugin, &self.state);
        let revision = plugin.revision().as_bytes();
        let mut inputs = Inputs::of_revision(plugin.contract(), revision, &entered.hash_key);
        inputs.children(&entered.observation.children);
        inputs.flag(entered.namespace_terminating);
        for child in &plugin.manifest().children {
            let resource = self.context.shared.cluster.resource(&child.kind);
            inputs.served(&child.kind, resource.as_ref());
            let kind = child.kind.group_kind();
            inputs.flag(entered.unreadable.contains_key(&kind));
        }
        Some(inputs)
    }

    /// Returns the time of the next pass if this one would change nothing.
    fn skip(&self, inputs: &Inputs) -> Option<Next> {
        let (context, entered) = (self.context, &self.state);
        let parent = &entered.observation.parent;
        let mut reads = self
            .registration
            .reads(parent, &self.epoch.serving.reads)
            .with_subscriptions(&entered.own_reads);
        let mut inputs = inputs.clone();
        inputs.parent(entered.phase, parent);
        let next = self
            .epoch
            .memory
            .recall(self.id, &inputs, |read| reads.read(read))?;
        // The reads equal those of the last pass, so the subscriptions do not change.
        self.registration.commit(self.id, &reads.into_recording());
        context.count_skip();
        // The last pass gave a valid answer, or it would not be remembered.
        self.record(parent.generation, None);
        debug!("skipped: inputs unchanged since the last pass");
        Some(next)
    }
}

impl<S> Pass<'_, S> {
    /// Returns the parent as the status of this pass left it, in this version; none if the guest may answer otherwise
    /// then, or if the cache does not show that version.
    ///
    /// The status was bound to the observed version, so nothing else of the parent has changed.
    pub(super) fn parent_after_status(&self, version: ResourceVersion) -> Option<Object> {
        if self.epoch.serving.plugin.manifest().reads_own_status {
            return None;
        }
        let parent = self.registration.parent(self.id)?;
        (parent.resource_version == version).then_some(parent)
    }
}
