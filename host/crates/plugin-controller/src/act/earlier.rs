//! Reactivates revisions: the last one after a restart, and the last good one in a rollback.
//!
//! Both use cached bytes, so no source is contacted.

use std::sync::Arc;

use innkeeper_model::{Digest, PluginReason, Retry};
use innkeeper_sandbox::Plugin;
use tracing::{info, warn};

use super::{
    Fact, Subject,
    activate::{self, Activated, Candidacy},
    poll,
};
use crate::{
    context::Context,
    load::granted,
    resource::{Declared, revision_name},
    rollout::Activation,
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// Activates an earlier revision; on failure the active one stays.
pub(super) async fn activate(
    cx: &Context,
    subject: &mut Subject<'_>,
    declared: &Declared,
    state: &mut PluginState,
    revision: Digest,
    activation: Activation,
) -> Fact {
    let Some(plugin) = plugin(cx, subject, declared, state, &revision).await else {
        return Fact::LoadingEarlier;
    };
    let result = match plugin {
        Ok(plugin) => {
            let candidacy = Candidacy::new(declared, plugin, activation.clone());
            granted_and_active(cx, subject, state, candidacy).await
        }
        Err(failure) => Err(failure),
    };
    let name = revision_name(&revision);
    match result {
        Ok(activated) => {
            if let Activation::RolledBack { why } = activation {
                warn!(plugin = %declared.name, revision = name, why, "rolled back to the last good revision");
            } else {
                info!(plugin = %declared.name, revision = name, "resumed the last active revision");
            }
            Fact::Activated(Box::new(activated))
        }
        Err(failure) => {
            let error = &failure.message;
            warn!(plugin = %declared.name, revision = name, error, "failed to activate an earlier revision");
            Fact::Lost(revision, failure)
        }
    }
}

async fn granted_and_active(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    candidacy: Candidacy<'_>,
) -> Result<Activated, StageFailure> {
    // The administrator may have removed grants since this revision was active.
    granted(candidacy.terms(), candidacy.manifest())?;
    activate::activate(cx, subject, state, candidacy)
        .await
        .map_err(|refusal| refusal.failure)
}

/// Returns an earlier revision from memory or the cache directory; none while it is being loaded.
async fn plugin(
    cx: &Context,
    subject: &Subject<'_>,
    declared: &Declared,
    state: &mut PluginState,
    revision: &Digest,
) -> Option<Result<Arc<Plugin>, StageFailure>> {
    let mut past = state.history.past();
    let Some(past) = past.find(|past| past.revision == *revision) else {
        let message = "the revision is not in status.history any more";
        let failure = Stage::Fetched.failure(PluginReason::NotKept, message, Retry::OnChange);
        return Some(Err(failure));
    };
    let component = match state.component(declared, &past.digest).cloned() {
        Some(component) => Ok(component),
        None => poll(
            cx,
            subject,
            declared,
            &mut state.loading,
            Some(&past.digest),
        )?,
    };
    Some(match component {
        Ok(component) => cx.loader.configure(&component, &past.config).await,
        Err(failure) => Err(failure),
    })
}
