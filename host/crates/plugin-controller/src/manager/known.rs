//! The state that a process keeps of one Plugin, and decisions from it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff};
use innkeeper_apply::Target;
use innkeeper_model::{Digest, Object, Retry, Uid};
use innkeeper_sandbox::Plugin;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Failed, PARENT_TAKEN, load::Component, running::Running};
use crate::{
    finalizers::Finalizers,
    lifecycle::{self, History, Problem, Revision, Situation, Stage},
    resource::{self, Candidate, Declared, revision_name},
};

/// The wait after a failed step: the first, and the longest.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// The refresh interval of the numbers of parents and faults in the status.
const REFRESHED_EVERY: Duration = Duration::from_secs(10);

/// The interval between checks of finalizers that are being removed.
const LEAVING_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// The state of one Plugin.
#[derive(Default)]
pub(super) struct Known {
    /// The last parsed declaration and its edition; none if the spec is invalid.
    pub(super) read: Option<(Edition, Arc<Declared>)>,
    /// The creation time.
    pub(super) created: Timestamp,
    pub(super) attempt: Option<Attempt>,
    pub(super) running: Option<Running>,
    /// Revisions that were to serve and do not.
    pub(super) refusals: BTreeMap<Digest, Refusal>,
    /// Revisions that were to serve again and cannot.
    pub(super) lost: BTreeMap<Digest, Refusal>,
    /// The revisions that have served.
    pub(super) history: History,
    /// The revision that an earlier process left serving, and how many faults it told of it.
    pub(super) left_serving: Option<(String, i64)>,
    /// The generation of the Plugin's spec.
    pub(super) generation: Option<i64>,
    /// The time at which the change that caused the pass was observed; none if the pass has no change.
    pub(super) change: Option<Instant>,
    /// The Plugin as it is written to.
    pub(super) target: Option<Target>,
    /// Parents that lose the plugin's finalizer.
    pub(super) finalizers: Finalizers,
    /// True if some of them still have it.
    pub(super) is_leaving: bool,
    /// The dry-run result of the loaded revision.
    pub(super) candidate: Option<Candidate>,
    pub(super) delays: Option<ExponentialBackoff>,
}

/// The UID and the generation of a Plugin.
#[derive(PartialEq, Eq)]
pub(super) struct Edition {
    uid: Uid,
    generation: i64,
}

impl Edition {
    /// That of an object; none where the API server does not say.
    fn of(object: &Object) -> Option<Self> {
        Some(Self {
            uid: object.uid.clone(),
            generation: object.generation?,
        })
    }
}

/// An attempt to load a declaration.
pub(super) struct Attempt {
    pub(super) of: Declared,
    pub(super) component: Option<Component>,
    pub(super) ended: Result<Arc<Plugin>, Problem>,
    pub(super) at: Instant,
    /// The time of the next attempt; none: at a change of the declaration, or the next pull.
    pub(super) retry_at: Option<Instant>,
}

impl Attempt {
    /// Returns the time of the next attempt or pull.
    pub(super) fn due(&self) -> Option<Instant> {
        let pull_at = self.of.pull_every.map(|every| self.at + every);
        self.retry_at.or(pull_at)
    }

    pub(super) fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }
}

/// The reason why a revision is not active, or not under the declared charter.
pub(super) struct Refusal {
    pub(super) of: Declared,
    pub(super) problem: Problem,
    pub(super) due: Option<Instant>,
}

impl Refusal {
    pub(super) fn is_for_a_rival(&self) -> bool {
        self.problem.reason == PARENT_TAKEN
    }

    pub(super) fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }
}

impl Known {
    /// Returns the declaration of a Plugin; parsed again only if it may have changed.
    pub(super) fn declared(&mut self, object: &Object) -> Result<Arc<Declared>, Problem> {
        let edition = Edition::of(object);
        if let (Some((last, declared)), Some(edition)) = (&self.read, &edition)
            && last == edition
        {
            return Ok(Arc::clone(declared));
        }
        self.read = None;
        let (declared, created) = super::declared(object)?;
        let declared = Arc::new(declared);
        self.created = created;
        self.read = edition.map(|edition| (edition, Arc::clone(&declared)));
        Ok(declared)
    }

    pub(super) fn situation<'a>(&'a self, declared: &'a Declared) -> Situation<'a> {
        let revision = |plugin: &Plugin| Revision {
            digest: plugin.revision().clone(),
            is_granted: declared.charter.assess(plugin.manifest()).serves(),
        };
        let attempt = self.attempt.as_ref();
        Situation {
            declared,
            attempt: attempt.map(|attempt| lifecycle::Attempt {
                of: &attempt.of,
                loaded: attempt
                    .ended
                    .as_ref()
                    .ok()
                    .filter(|plugin| !self.is_refused(plugin.revision()))
                    .map(|plugin| revision(plugin)),
                is_due: attempt.is_due(),
                is_rolled_back: self.is_rolled_back(attempt),
            }),
            served: self.running.as_ref().map(|running| lifecycle::Served {
                revision: revision(&running.plugin),
                charter: &running.charter,
                trial: self.judgement(),
            }),
            last: self.last(),
            good: self.good(),
        }
    }

    /// A revision that was loaded or serves.
    pub(super) fn plugin(&self, revision: &Digest) -> Option<Arc<Plugin>> {
        let loaded = self.attempt.as_ref();
        let loaded = loaded.and_then(|attempt| attempt.ended.as_ref().ok());
        let serves = self.running.as_ref().map(|running| &running.plugin);
        let mut plugins = loaded.into_iter().chain(serves);
        plugins
            .find(|plugin| plugin.revision() == revision)
            .cloned()
    }

    pub(super) fn is_refused(&self, revision: &Digest) -> bool {
        self.refusals.contains_key(revision)
    }

    pub(super) fn refuse(&mut self, revision: Digest, declared: &Declared, failed: Failed) {
        let Failed { problem, retry } = failed;
        let due = self.due(retry);
        let of = declared.clone();
        self.refusals.insert(revision, Refusal { of, problem, due });
    }

    /// Forgets refusals whose time is over, or that something else was declared for.
    pub(super) fn try_again(&mut self, declared: &Declared, has_turn: bool) {
        for refusals in [&mut self.refusals, &mut self.lost] {
            refusals.retain(|_, refusal| {
                let is_over = refusal.is_due() || has_turn && refusal.is_for_a_rival();
                refusal.of == *declared && !is_over
            });
        }
    }

    /// Returns the number of faults of the active revision that an earlier process reported.
    pub(super) fn faults_told(&self) -> i64 {
        let serves = self.running.as_ref();
        let serves = serves.map(|running| revision_name(running.plugin.revision()));
        match (&self.left_serving, serves) {
            (Some((left, told)), Some(serves)) if *left == serves => *told,
            _ => 0,
        }
    }

    /// The reason why the declared revision is not active.
    pub(super) fn problem(&self, declared: &Declared) -> Option<Problem> {
        let attempt = self.attempt.as_ref()?;
        let plugin = match &attempt.ended {
            Ok(plugin) => plugin,
            Err(problem) => return Some(problem.clone()),
        };
        let assessment = declared.charter.assess(plugin.manifest());
        if !assessment.serves() {
            return Some(Problem {
                stage: Stage::Granted,
                reason: "NotGranted".to_owned(),
                message: resource::lines(&assessment).unwrap_or_default(),
            });
        }
        let why = self.history.rolled_back(plugin.revision(), self.generation);
        if let Some(message) = why {
            return Some(Problem {
                stage: Stage::Serving,
                reason: "RolledBack".to_owned(),
                message,
            });
        }
        let refusals = self.refusals.get(plugin.revision()).into_iter();
        let mut refusals = refusals.chain(self.refusals.values());
        refusals.next().map(|refusal| refusal.problem.clone())
    }

    /// Returns the time of the next attempt after a failure.
    pub(super) fn due(&mut self, retry: Retry) -> Option<Instant> {
        let mut delay = || {
            let delays = self.delays.get_or_insert_with(delays);
            delays.next().unwrap_or(BACKOFF_MAX)
        };
        let wait = match retry {
            Retry::Never | Retry::OnChange => return None,
            Retry::Backoff => delay(),
            Retry::At(least) => delay().max(least),
        };
        Some(Instant::now() + wait)
    }

    /// The next time at which there is something to do although nothing has changed.
    pub(super) fn due_next(&self) -> Option<Instant> {
        let attempt = self.attempt.as_ref().and_then(Attempt::due);
        let refusals = self.refusals.values().chain(self.lost.values());
        let refusal = refusals.filter_map(|one| one.due).min();
        let refresh = self.running.as_ref();
        let refresh = refresh.map(|_| Instant::now() + REFRESHED_EVERY);
        let leaving = self
            .is_leaving
            .then(|| Instant::now() + LEAVING_LOOKED_AT_EVERY);
        let dues = [attempt, refusal, refresh, leaving];
        dues.into_iter().flatten().min()
    }
}

fn delays() -> ExponentialBackoff {
    backon::ExponentialBuilder::new()
        .with_min_delay(BACKOFF_MIN)
        .with_max_delay(BACKOFF_MAX)
        .without_max_times()
        .build()
}
