//! Actions: each loads, swaps or writes one thing, and returns a result for the state to record.

mod activate;
mod earlier;
mod release;

use innkeeper_apply::Target;
use innkeeper_model::{Digest, Object, PluginName};
use tokio::time::Instant;
use tracing::info;

pub use activate::Start;
pub(crate) use activate::{Activated, Refusal, start};
pub(crate) use release::{release_dropped_kinds, release_parents, remove_finalizer};

use crate::{
    claims::TakenKind,
    context::{Context, resource_of},
    decide::Action,
    load::{LoadId, Loading, VerifiedComponent},
    resource::Declared,
    rollout::{Activation, Moment},
    setback::LoadAttempt,
    stage::StageFailure,
    state::PluginState,
};
use activate::Candidacy;

/// The Plugin that a pass handles.
pub(crate) struct Subject<'a> {
    /// The observed Plugin.
    pub(crate) object: &'a Object,
    /// The Plugin for writes; every write in the pass updates its version.
    pub(crate) target: Target,
    /// The current time and generation.
    pub(crate) moment: Moment,
    /// Time when the change that caused the pass was observed, if a change caused it.
    pub(crate) change: Option<Instant>,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(cx: &Context, object: &'a Object, change: Option<Instant>) -> Self {
        Self {
            object,
            target: Target::new(object, &resource_of(object)),
            moment: cx.moment(object.generation),
            change,
        }
    }
}

/// An action's result.
pub(crate) enum Fact {
    /// The declaration has been loaded, or failed to load.
    Loaded(Box<LoadAttempt>),
    /// Nothing to record yet. A load triggers a pass when it progresses.
    Done,
    /// A revision became active.
    Activated(Box<Activated>),
    /// A declared revision could not become active.
    Refused(Digest, Refusal),
    /// An earlier revision could not become active again.
    Lost(Digest, StageFailure),
    /// An earlier revision is being loaded; nothing else can be done before.
    LoadingEarlier,
    /// No revision is active any more.
    Stopped,
    /// The active revision is the declared one.
    Kept,
}

/// Takes an action for a Plugin.
pub(crate) async fn act(
    cx: &Context,
    subject: &mut Subject<'_>,
    declared: &Declared,
    state: &mut PluginState,
    action: Action,
) -> Fact {
    match action {
        Action::Configure => configure(cx, declared, state).await,
        Action::Bind(terms) => {
            if let Some(active) = &mut state.active {
                activate::bind(cx, declared, active, *terms, subject.change).await;
            }
            Fact::Done
        }
        Action::StopFor(TakenKind { kind, by }) => {
            info!(plugin = %declared.name, %kind, %by, "stopping the plugin: an older Plugin becomes active");
            stopped(cx, declared, state).await
        }
        Action::Stop => {
            info!(plugin = %declared.name, "stopping the plugin: its grants do not suffice any more");
            stopped(cx, declared, state).await
        }
        Action::Resume(revision) => {
            earlier::activate(cx, subject, declared, state, revision, Activation::Resumed).await
        }
        Action::RollBack { to, why } => {
            let activation = Activation::RolledBack { why };
            earlier::activate(cx, subject, declared, state, to, activation).await
        }
        Action::Load => match poll(cx, subject, declared, &mut state.loading, None) {
            None => Fact::Done,
            Some(component) => load(cx, declared, component, Instant::now()).await,
        },
        Action::Activate(revision) => match state.plugin(&revision) {
            Some(plugin) => {
                let candidacy = Candidacy::new(declared, plugin, Activation::Declared);
                match activate::activate(cx, subject, state, candidacy).await {
                    Ok(activated) => Fact::Activated(Box::new(activated)),
                    Err(refusal) => Fact::Refused(revision, refusal),
                }
            }
            // Never: only loaded and active revisions are activated.
            None => Fact::Done,
        },
        Action::Keep => Fact::Kept,
    }
}

async fn stopped(cx: &Context, declared: &Declared, state: &mut PluginState) -> Fact {
    if activate::stop(cx, &declared.name, &mut state.active).await {
        Fact::Stopped
    } else {
        Fact::Done
    }
}

/// Stops a deleted Plugin, or one that is being deleted.
pub(crate) async fn stop(cx: &Context, name: &PluginName, state: &mut PluginState, moment: Moment) {
    if activate::stop(cx, name, &mut state.active).await {
        state.history.end(moment);
    }
}

async fn configure(cx: &Context, declared: &Declared, state: &PluginState) -> Fact {
    // With the load's time: another configuration must not postpone the next pull.
    let component = state
        .attempt
        .as_ref()
        .and_then(|attempt| Some((attempt.component.clone()?, attempt.at)));
    match component {
        Some((component, at)) => load(cx, declared, Ok(component), at).await,
        // Never: only a loaded component is configured.
        None => Fact::Done,
    }
}

/// Applies the declared configuration to a loaded component.
async fn load(
    cx: &Context,
    declared: &Declared,
    component: Result<VerifiedComponent, StageFailure>,
    at: Instant,
) -> Fact {
    let (component, result) = match component {
        Ok(component) => {
            let result = cx.loader.configure(&component, &declared.config).await;
            // Also if it rejects the configuration: a corrected one then needs no download.
            (Some(component), result)
        }
        Err(failure) => (None, Err(failure)),
    };
    Fact::Loaded(Box::new(LoadAttempt {
        declared: declared.clone(),
        component,
        result,
        at,
        retry_at: None,
    }))
}

/// Returns the declared component, or the one with these bytes in the cache directory, once it is loaded.
///
/// Starts the load if it is not running, and replaces any other load for the Plugin.
fn poll(
    cx: &Context,
    subject: &Subject<'_>,
    declared: &Declared,
    loading: &mut Option<Loading>,
    kept: Option<&Digest>,
) -> Option<Result<VerifiedComponent, StageFailure>> {
    let load = LoadId {
        uid: subject.object.uid.clone(),
        generation: subject.object.generation,
        kept: kept.cloned(),
    };
    Loading::poll(loading, &cx.loader, &cx.registration, declared, load)
}
