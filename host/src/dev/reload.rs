//! The loop of an author: build, plan, swap, and again after each change of a file.
//!
//! The host swaps revisions as for any Plugin resource: a build or a plan that fails leaves the active revision in place.

use std::{
    io::{BufRead as _, stdin},
    sync::Arc,
};

use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{GroupKind, Gvk, ObjectId, Resources as _, error_chain};
use innkeeper_plugin_controller::{
    plugin_kind,
    resource::{
        self, CandidateCounts, CandidateFault, CandidateStatus, ObjectName, Plugin, PluginStatus,
    },
};
use innkeeper_reconcile::Shared;
use serde_json::{Map, Value};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    examples::{MANAGER, SERVED_WITHIN},
    project::{Built, LABEL_MANAGER, Project, Sources},
    show::Show,
};

/// The decision on revisions that wait for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// The user is asked about each revision.
    pub(super) ask: bool,
    /// The user is asked about a revision that deletes children.
    pub(super) ask_for_deletes: bool,
}

/// The answer to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Approve,
    Ask,
    /// The plugin fails for a parent.
    Refuse,
}

impl Consent {
    /// Decides on a candidate by its dry run. Without one, its deletes are unknown: an earlier revision has served here, and
    /// could not be loaded again.
    fn judge(self, counts: Option<CandidateCounts>) -> Verdict {
        let may_delete = counts.is_none_or(|counts| counts.deletes > 0);
        if self.ask {
            Verdict::Ask
        } else if counts.is_some_and(|counts| counts.faults > 0) {
            Verdict::Refuse
        } else if self.ask_for_deletes && may_delete {
            Verdict::Ask
        } else {
            Verdict::Approve
        }
    }
}

/// The changes of the sources, each of which is built once.
struct Changes {
    /// The sources of the last build.
    built: Option<Sources>,
    /// Later sources, which may not be complete: an editor writes a file in several steps.
    seen: Option<Sources>,
    /// The time of the first change after the last build.
    began: Instant,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            built: None,
            seen: None,
            began: Instant::now(),
        }
    }
}

impl Changes {
    /// Returns true if the sources differ from those of the last build, and no file has changed since the last look.
    fn are_due(&mut self, sources: &Sources) -> bool {
        if self.built.as_ref() == Some(sources) {
            self.seen = None;
            return false;
        }
        let is_first_build = self.built.is_none();
        if self.seen.is_none() {
            self.began = Instant::now();
        }
        let is_still = self.seen.replace(sources.clone()).as_ref() == Some(sources);
        if is_still || is_first_build {
            self.seen = None;
        }
        is_still || is_first_build
    }
}

/// The progress of a project in one cluster.
pub(super) struct Reload {
    project: Arc<Project>,
    consent: Consent,
    changes: Changes,
    built: Option<Built>,
    /// The candidate that was judged last.
    judged: Option<String>,
    /// The last line about the Plugin.
    said: String,
}

impl Reload {
    pub(super) fn new(project: Arc<Project>, consent: Consent) -> Self {
        Self {
            project,
            consent,
            changes: Changes::default(),
            built: None,
            judged: None,
            said: String::new(),
        }
    }

    /// Takes one step; returns true once the revision of the last build serves.
    pub(super) async fn step(&mut self, shared: &Shared, show: &mut Show) -> Result<bool, Failure> {
        let sources = self.project.sources();
        if self.changes.are_due(&sources) {
            self.judged = None;
            if let Err(failure) = self.declare(shared, show, &sources).await {
                if self.changes.built.is_none() {
                    return Err(failure);
                }
                show.say(&format!(
                    "{}; the active revision stays",
                    error_chain(&failure)
                ))?;
            }
            // The files as they were before the build: a change during the build is built again.
            let after = self.project.sources();
            self.changes.built = Some(sources.with_lock_of(&after));
        }
        let Some(built) = self.built.clone() else {
            return Ok(false);
        };
        let Some(plugin) = plugin(shared, built.name()).await? else {
            return Ok(false);
        };
        let status = plugin.status.unwrap_or_default();
        if status.observed_generation != plugin.metadata.generation {
            return Ok(false);
        }
        if let Some(candidate) = &status.candidate
            && candidate.digest == built.digest()
            && self.judged.as_ref() != Some(&candidate.revision)
        {
            self.judge(shared, show, &built, candidate).await?;
            self.judged = Some(candidate.revision.clone());
        }
        self.tell(show, &built, &status)
    }

    /// Takes one step while the session goes on. A failure is told once and does not end it: the API server may come back, and
    /// a file may be written to its end.
    pub(super) async fn follow(&mut self, shared: &Shared, show: &mut Show) -> Result<(), Failure> {
        if let Err(failure) = self.step(shared, show).await {
            let line = error_chain(&failure).to_string();
            if self.said != line {
                show.say(&line)?;
                self.said = line;
            }
        }
        Ok(())
    }

    /// Builds what has changed, and declares it.
    async fn declare(
        &mut self,
        shared: &Shared,
        show: &mut Show,
        sources: &Sources,
    ) -> Result<(), Failure> {
        let is_built = |before: &Sources| before.has_the_code_of(sources);
        let known = self
            .built
            .take_if(|_| self.changes.built.as_ref().is_some_and(is_built));
        let built = if let Some(known) = known {
            known
        } else {
            let step = show.step("building the plugin")?;
            let project = Arc::clone(&self.project);
            let built = spawn_blocking(move || project.build())
                .await
                .or_fail(Exit::Failure, "the build ended")??;
            show.done(step)?;
            built
        };
        keep_off(shared, built.name()).await?;
        let object = self.project.plugin(&built, None);
        // Also if the configuration is wrong: the next change of it needs no build.
        self.built = Some(built);
        apply(shared, &plugin_kind(), &object?).await
    }

    /// Shows the plan of a candidate, and approves it if it may serve.
    async fn judge(
        &self,
        shared: &Shared,
        show: &mut Show,
        built: &Built,
        candidate: &CandidateStatus,
    ) -> Result<(), Failure> {
        match candidate.counts {
            Some(counts) => show.say(&plan(counts))?,
            None => show.say("plan: unknown, because the revision before could not be loaded")?,
        }
        for one in &candidate.deletes {
            show.say(&format!("  deletes {}", id(one)))?;
        }
        for fault in &candidate.faults {
            show.say(&format!("  {}", line(fault)))?;
        }
        let is_approved = match self.consent.judge(candidate.counts) {
            Verdict::Approve => true,
            Verdict::Ask => {
                show.say("swap to this revision? [y/N]")?;
                confirmed().await
            }
            Verdict::Refuse => false,
        };
        if !is_approved {
            return show.say("not swapped: the active revision stays");
        }
        let object = self.project.plugin(built, Some(&candidate.revision))?;
        apply(shared, &plugin_kind(), &object).await
    }

    /// Shows the state of the Plugin when it changes; returns true if the last build serves.
    fn tell(&mut self, show: &Show, built: &Built, status: &PluginStatus) -> Result<bool, Failure> {
        let condition = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
        let ready = condition("Ready");
        let is_ready = ready.is_some_and(|it| it.status == "True");
        let serves = is_ready && status.digest.as_deref() == Some(&built.digest());
        let revision = status.revision.as_deref().unwrap_or_default();
        let line = match ready {
            Some(_) if serves => format!("plugin {} serves revision {revision}", built.name()),
            // Until the plan is judged, each candidate waits for approval.
            Some(ready) if status.candidate.is_none() && !ready.message.is_empty() => {
                format!(
                    "plugin {}: {}: {}",
                    built.name(),
                    ready.reason,
                    ready.message
                )
            }
            _ => return Ok(serves),
        };
        if self.said != line {
            let after = self.changes.began.elapsed().as_secs_f64();
            show.say(&format!("{line} ({after:.1} s after the change)"))?;
            self.said = line;
        }
        Ok(serves)
    }
}

/// Returns one line about the dry run of a candidate, deletes first.
fn plan(counts: CandidateCounts) -> String {
    let CandidateCounts {
        parents,
        creates,
        updates,
        deletes,
        faults,
    } = counts;
    format!(
        "plan for {parents} parents: {deletes} deletes, {creates} creates, {updates} updates, {faults} faults"
    )
}

fn id(name: &ObjectName) -> ObjectId {
    let kind = GroupKind::new(&*name.group, &*name.kind);
    ObjectId::new(kind, name.namespace.as_deref(), &name.name)
}

/// Returns one line about a parent for which a candidate fails.
fn line(fault: &CandidateFault) -> String {
    let CandidateFault {
        reason,
        message,
        parent,
    } = fault;
    format!("fails for {}: {reason}: {message}", id(parent))
}

/// Installs the definition of the Plugin resource.
pub(super) async fn install(shared: &Shared) -> Result<(), Failure> {
    let definition = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    apply(shared, &definition, &resource::crd()).await?;
    shared.cluster.refresh_discovery();
    // A request for a kind that is not served names it.
    timeout(SERVED_WITHIN, shared.cluster.wait_served(&plugin_kind()))
        .await
        .map(drop)
        .or_fail(Exit::Failure, "the cluster does not serve Plugin resources")
}

async fn apply(shared: &Shared, kind: &Gvk, object: &Map<String, Value>) -> Result<(), Failure> {
    let served = shared.cluster.resource(kind).ok_or_else(|| {
        let message = format!("the cluster does not serve {kind}");
        Failure::new(Exit::Failure, message)
    })?;
    let applied = shared.writer.object(MANAGER, object, &served).await;
    applied
        .map(drop)
        .or_fail(Exit::Failure, format!("failed to apply the {}", kind.kind))
}

/// Fails if another user made the Plugin of this name, because its revision serves parents.
async fn keep_off(shared: &Shared, name: &str) -> Result<(), Failure> {
    let present = plugin(shared, name).await?;
    let of_others = present.filter(|plugin| {
        let labels = plugin.metadata.labels.as_ref();
        labels
            .and_then(|it| it.get(LABEL_MANAGER))
            .map(String::as_str)
            != Some(MANAGER)
    });
    of_others.map_or(Ok(()), |_| {
        let message = format!(
            "the Plugin {name} is in the cluster and has no label {LABEL_MANAGER}={MANAGER}: rename the plugin in describe(), or use another cluster"
        );
        Err(Failure::new(Exit::Usage, message))
    })
}

async fn plugin(shared: &Shared, name: &str) -> Result<Option<Plugin>, Failure> {
    let message = format!("failed to read the Plugin {name}");
    let found = shared
        .cluster
        .live_get(&plugin_kind(), None, name)
        .await
        .or_fail(Exit::Failure, &message)?;
    let parsed = found.map(|object| Plugin::read(&object.json)).transpose();
    parsed.or_fail(Exit::Failure, message)
}

/// Reads one line; true for a yes.
async fn confirmed() -> bool {
    let read = || {
        let mut line = String::new();
        // Without an input, the answer is no.
        stdin().lock().read_line(&mut line).ok().map(|_| line)
    };
    let line = spawn_blocking(read).await.ok().flatten();
    line.is_some_and(|line| matches!(line.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_save_is_built_once() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        let sources = || Sources::of(root.path());
        write("lib.rs", "first");
        let mut changes = Changes::default();
        assert!(changes.are_due(&sources()));
        let before = sources();
        // The first build makes it.
        write("Cargo.lock", "made");
        changes.built = Some(before.with_lock_of(&sources()));
        assert!(!changes.are_due(&sources()));

        // An editor empties the file and writes it.
        write("lib.rs", "");
        assert!(!changes.are_due(&sources()));
        write("lib.rs", "other");
        assert!(!changes.are_due(&sources()));
        assert!(changes.are_due(&sources()));
        changes.built = Some(sources());
        assert!(!changes.are_due(&sources()));
        // A change that is taken back needs no build.
        write("new.rs", "");
        assert!(!changes.are_due(&sources()));
        fs::remove_file(root.path().join("new.rs")).unwrap();
        assert!(!changes.are_due(&sources()));
        assert!(!changes.are_due(&sources()));
    }

    #[test]
    fn a_revision_serves_unless_it_fails_or_the_user_is_to_be_asked() {
        let counts = |deletes, faults| {
            Some(CandidateCounts {
                parents: 2,
                deletes,
                faults,
                ..CandidateCounts::default()
            })
        };
        let rows = [
            (false, false, None, Verdict::Approve),
            (false, true, None, Verdict::Ask),
            (false, false, counts(3, 0), Verdict::Approve),
            (false, false, counts(0, 1), Verdict::Refuse),
            (false, true, counts(0, 0), Verdict::Approve),
            (false, true, counts(1, 0), Verdict::Ask),
            (true, false, None, Verdict::Ask),
            (true, false, counts(0, 0), Verdict::Ask),
            (true, true, counts(1, 1), Verdict::Ask),
        ];
        for (ask, ask_for_deletes, counts, expected) in rows {
            let consent = Consent {
                ask,
                ask_for_deletes,
            };
            assert_eq!(consent.judge(counts), expected, "{consent:?} {counts:?}");
        }
    }
}
