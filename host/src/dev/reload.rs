//! An author's loop: build, plan and swap after each file change.
//!
//! The host swaps revisions as for any Plugin resource. If a build or a plan fails, the active revision stays.

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

/// Decides whether revisions are approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// Ask the user about each revision.
    pub(super) ask: bool,
    /// Ask the user about revisions that delete children.
    pub(super) ask_for_deletes: bool,
}

/// The decision on a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Approve,
    Ask,
    /// The plugin fails for a parent.
    Refuse,
}

impl Consent {
    /// Decides on a candidate after the dry run. Without one, deletes are unknown: the earlier revision could not be loaded.
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

/// Detects changes of the sources, to build each once.
struct Changes {
    /// The sources of the last build.
    built: Option<Sources>,
    /// Later sources, which may be incomplete: an editor writes a file in several steps.
    pending: Option<Sources>,
    /// The time of the first change after the last build.
    since: Instant,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            built: None,
            pending: None,
            since: Instant::now(),
        }
    }
}

impl Changes {
    /// Returns true if the sources differ from those of the last build, and have not changed since the last call.
    fn are_due(&mut self, sources: &Sources) -> bool {
        if self.built.as_ref() == Some(sources) {
            self.pending = None;
            return false;
        }
        if self.pending.is_none() {
            self.since = Instant::now();
        }
        let is_stable = self.pending.replace(sources.clone()).as_ref() == Some(sources);
        // The first build does not wait: no change has been seen.
        let is_due = is_stable || self.built.is_none();
        if is_due {
            self.pending = None;
        }
        is_due
    }
}

/// Builds and swaps a project's plugin in one cluster.
pub(super) struct Reload {
    project: Arc<Project>,
    consent: Consent,
    changes: Changes,
    built: Option<Built>,
    /// The last candidate with a decision.
    judged: Option<String>,
    /// The last line about the Plugin.
    last_line: String,
}

impl Reload {
    pub(super) fn new(project: Arc<Project>, consent: Consent) -> Self {
        Self {
            project,
            consent,
            changes: Changes::default(),
            built: None,
            judged: None,
            last_line: String::new(),
        }
    }

    /// Takes one step; returns true once the last build's revision is active.
    pub(super) async fn step(&mut self, shared: &Shared, show: &mut Show) -> Result<bool, Failure> {
        let sources = self.project.sources();
        if self.changes.are_due(&sources) {
            self.judged = None;
            if let Err(failure) = self.declare(shared, show, &sources).await {
                // The first build has no earlier revision that could stay.
                if self.changes.built.is_none() {
                    return Err(failure);
                }
                show.say(&format!(
                    "{}; the active revision stays",
                    error_chain(&failure)
                ))?;
            }
            // The files before the build, so that changes during it cause another one.
            let after = self.project.sources();
            self.changes.built = Some(sources.with_lock_from(&after));
        }
        let Some(built) = self.built.clone() else {
            return Ok(false);
        };
        let Some(plugin) = plugin(shared, built.name()).await? else {
            return Ok(false);
        };
        let status = plugin.status.unwrap_or_default();
        // This status is still about the previous build.
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
        self.show_state(show, &built, &status)
    }

    /// Takes one step. Shows a failure once and continues: the API server may return, and an editor may finish a file.
    pub(super) async fn follow(&mut self, shared: &Shared, show: &mut Show) -> Result<(), Failure> {
        if let Err(failure) = self.step(shared, show).await {
            let line = error_chain(&failure).to_string();
            if self.last_line != line {
                show.say(&line)?;
                self.last_line = line;
            }
        }
        Ok(())
    }

    /// Builds the crate if its code changed, and applies the Plugin.
    async fn declare(
        &mut self,
        shared: &Shared,
        show: &mut Show,
        sources: &Sources,
    ) -> Result<(), Failure> {
        let is_current = |before: &Sources| before.has_same_code(sources);
        let current = self
            .built
            .take_if(|_| self.changes.built.as_ref().is_some_and(is_current));
        let built = if let Some(current) = current {
            current
        } else {
            let step = show.step("building the plugin")?;
            let project = Arc::clone(&self.project);
            let built = spawn_blocking(move || project.build())
                .await
                .or_fail(Exit::Failure, "the build ended")??;
            show.done(step)?;
            built
        };
        check_owner(shared, built.name()).await?;
        let object = self.project.plugin(&built, None);
        // Even if the configuration is wrong: fixing it needs no build.
        self.built = Some(built);
        apply(shared, &plugin_kind(), &object?).await
    }

    /// Shows a candidate's plan, and approves the candidate if allowed.
    async fn judge(
        &self,
        shared: &Shared,
        show: &mut Show,
        built: &Built,
        candidate: &CandidateStatus,
    ) -> Result<(), Failure> {
        match candidate.counts {
            Some(counts) => show.say(&plan(counts))?,
            None => show.say("plan: unknown, because the previous revision could not be loaded")?,
        }
        for child in &candidate.deletes {
            show.say(&format!("  deletes {}", id(child)))?;
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

    /// Shows the Plugin's state when it changes; returns true if the last build is active.
    fn show_state(
        &mut self,
        show: &Show,
        built: &Built,
        status: &PluginStatus,
    ) -> Result<bool, Failure> {
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready");
        let is_active = ready.is_some_and(|ready| ready.status == "True")
            && status.digest.as_deref() == Some(&built.digest());
        let revision = status.revision.as_deref().unwrap_or_default();
        let line = match ready {
            Some(_) if is_active => format!("plugin {} serves revision {revision}", built.name()),
            // A candidate without a decision waits for approval.
            Some(ready) if status.candidate.is_none() && !ready.message.is_empty() => {
                format!(
                    "plugin {}: {}: {}",
                    built.name(),
                    ready.reason,
                    ready.message
                )
            }
            _ => return Ok(is_active),
        };
        if self.last_line != line {
            let seconds = self.changes.since.elapsed().as_secs_f64();
            show.say(&format!("{line} ({seconds:.1} s after the change)"))?;
            self.last_line = line;
        }
        Ok(is_active)
    }
}

/// Returns one line about a candidate's dry run, deletes first.
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

/// Installs the Plugin CRD.
pub(super) async fn install(shared: &Shared) -> Result<(), Failure> {
    let definition = Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    apply(shared, &definition, &resource::crd()).await?;
    shared.cluster.refresh_discovery();
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
    shared
        .writers
        .leader()
        .object(MANAGER, object, &served)
        .await
        .map(drop)
        .or_fail(Exit::Failure, format!("failed to apply the {}", kind.kind))
}

/// Fails if someone else created the Plugin with this name, because it may serve parents.
async fn check_owner(shared: &Shared, name: &str) -> Result<(), Failure> {
    let Some(plugin) = plugin(shared, name).await? else {
        return Ok(());
    };
    let labels = plugin.metadata.labels.unwrap_or_default();
    if labels.get(LABEL_MANAGER).map(String::as_str) == Some(MANAGER) {
        return Ok(());
    }
    let message = format!(
        "the Plugin {name} exists in the cluster without the label {LABEL_MANAGER}={MANAGER}: rename the plugin in describe(), or use another cluster"
    );
    Err(Failure::new(Exit::Usage, message))
}

async fn plugin(shared: &Shared, name: &str) -> Result<Option<Plugin>, Failure> {
    let message = format!("failed to read the Plugin {name}");
    shared
        .cluster
        .live_get(&plugin_kind(), None, name)
        .await
        .or_fail(Exit::Failure, &message)?
        .map(|object| Plugin::read(&object.json))
        .transpose()
        .or_fail(Exit::Failure, message)
}

/// Reads one line; true for a yes.
async fn confirmed() -> bool {
    let read = || {
        let mut line = String::new();
        // No input means no.
        stdin().lock().read_line(&mut line).ok().map(|_| line)
    };
    spawn_blocking(read)
        .await
        .ok()
        .flatten()
        .is_some_and(|line| matches!(line.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_save_is_built_once() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        let sources = || Sources::read(root.path());
        write("lib.rs", "first");
        let mut changes = Changes::default();
        assert!(changes.are_due(&sources()));
        let before = sources();
        // The first build creates it.
        write("Cargo.lock", "new");
        changes.built = Some(before.with_lock_from(&sources()));
        assert!(!changes.are_due(&sources()));

        // An editor empties the file and writes it.
        write("lib.rs", "");
        assert!(!changes.are_due(&sources()));
        write("lib.rs", "other");
        assert!(!changes.are_due(&sources()));
        assert!(changes.are_due(&sources()));
        changes.built = Some(sources());
        assert!(!changes.are_due(&sources()));
        // An undone change needs no build.
        write("new.rs", "");
        assert!(!changes.are_due(&sources()));
        fs::remove_file(root.path().join("new.rs")).unwrap();
        assert!(!changes.are_due(&sources()));
        assert!(!changes.are_due(&sources()));
    }

    #[test]
    fn approves_a_revision_unless_it_fails_or_the_user_decides() {
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
