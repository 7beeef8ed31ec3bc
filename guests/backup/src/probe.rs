//! Probes a `Storage`: a Job stores a small archive in it.
//!
//! It is a gobackup run with one storage, and the probe configuration as the only file, so image, script, credentials and
//! tenant limits are the same. A probe starts after a period, and when the `Storage` or a Secret key has changed since
//! the last one. A Job stays until the next probe.

use innkeeper_kit::prelude::*;
use innkeeper_sdk::hash::hash_lines;
use k8s_openapi::{
    api::batch::v1::Job,
    jiff::{SignedDuration, Timestamp},
};

use crate::{
    Kinds,
    api::{
        Archive, ArchiveSettings, BackupSpec, Compression, Kind, Parent, State, StateMode,
        related::{Probe, Probed, Storage, StorageStatus},
    },
    children::{self, CONFIG_HASH},
    config::Config,
    names::{lower, suffixed},
    plan::Plan,
    pod::CONFIG_PATH,
    references::{self, Related},
    render::{self, Origin, Rendered},
    status::Phase,
    stop::Stop,
    task::{self, Record, Task},
};

/// Archive name without extension. Each probe replaces the last archive.
const ARCHIVE: &str = "gobackup-probe";

/// Prefix of the model's name. No object name has two dots in a row, so no parent shares the list of archives.
const MODEL: &str = "probe..";

/// Maximum duration in seconds, including the image pull.
const DEADLINE_SECONDS: i64 = 600;

/// The time after which a failed probe is made again.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_hours(1);

/// The answer for a `Storage`.
pub(crate) fn reconcile(
    storage: &Storage,
    request: &Request,
    host: &dyn Host,
    config: &Config,
) -> Result<Answer, Fault> {
    let parent = parent(storage.spec.probe.as_ref());
    let mut state = ProbeState::read(request, host, storage.spec.probe.as_ref())?;
    let answer = rendered(request, &parent, storage, config).and_then(|rendered| {
        let Some(probe) = &storage.spec.probe else {
            return Ok(Vec::new());
        };
        let plan = Plan {
            request,
            parent: &parent,
            config,
            schedule: None,
            rendered,
        };
        let key = checked(&plan, host, probe)?;
        state.decide(host, probe, &key);
        Ok(state.children(&plan, &key))
    });
    match answer {
        Ok(children) => {
            let report = state.report(None);
            Ok(Desired { children, report }.into())
        }
        Err(stop) => stop.outcome(|reason, message| state.report(Some((reason, message)))),
    }
}

/// Returns the parent of the run that stores the probe's archive.
fn parent(probe: Option<&Probe>) -> Parent {
    let spec = BackupSpec {
        // The next probe needs no list of archives, because it replaces this archive.
        state: Some(State {
            mode: StateMode::Ephemeral,
            ..State::default()
        }),
        pod_template: probe.and_then(|probe| probe.pod_template.clone()),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        backoff_limit: Some(0),
        ..BackupSpec::default()
    };
    Parent {
        kind: Kind::Probe,
        spec,
        schedule: None,
    }
}

/// Renders the probe's configuration. An error lies in the `Storage`.
fn rendered(
    request: &Request,
    parent: &Parent,
    storage: &Storage,
    config: &Config,
) -> Result<Rendered, Stop> {
    // Below the archives' path, because credentials may only be valid there.
    let path = config.path_of(request.namespace(), lower(parent.kind), request.name());
    let mut source = references::own(request.name(), &storage.spec, &path)?;
    // `keep` needs the list of archives, which a probe does not have.
    source.config.remove("keep");
    // gobackup cannot replace objects in gcs, so each archive there has a different name.
    let is_replaced = source.type_.name != "gcs";
    let settings = ArchiveSettings {
        compress_with: Some(Compression {
            filename_format: is_replaced.then(|| ARCHIVE.to_owned()),
            ..Compression::default()
        }),
        // Each run has this file, and it contains no credential.
        archive: Some(Archive {
            includes: vec![CONFIG_PATH.to_owned()],
            ..Archive::default()
        }),
        ..ArchiveSettings::default()
    };
    let related = Related {
        model: ArchiveSettings::default(),
        databases: Vec::new(),
        storages: vec![source],
        warnings: Vec::new(),
    };
    let name = format!("{MODEL}{}", request.name());
    match render::render(&name, parent, &settings, &related) {
        Err(Stop::Blocked { message, .. }) => Err(Stop::Invalid(message)),
        rendered => rendered,
    }
}

/// Checks tenant limits as for a run, and returns the probe's key, which changes with each setting.
fn checked(plan: &Plan<'_>, host: &dyn Host, probe: &Probe) -> Result<String, Stop> {
    let request = plan.request;
    let limits = &plan.config.tenants;
    if let Some(template) = &probe.pod_template {
        template.check("spec.probe.podTemplate", &limits.pod_template())?;
    }
    crate::tenants::check_parent(plan.parent, limits)?;
    let secrets =
        crate::tenants::check_references(request, host, plan.parent, &plan.rendered, None, limits)?;
    let own = [
        format!("generation={}", request.generation()),
        format!("image={}", plan.config.images.gobackup),
    ];
    let path = &plan.config.storage_path;
    let path = (!path.is_empty()).then(|| format!("path={path}"));
    let own = own.into_iter().chain(path);
    Ok(hash_lines(own.chain(credentials(&plan.rendered, &secrets))))
}

/// Returns the hashes of the Secret keys that the storage names.
fn credentials(rendered: &Rendered, secrets: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    for credential in &rendered.credentials {
        if let Origin::Secret(secret) = &credential.origin {
            let named = secrets
                .objects()
                .filter(|object| object.name() == secret.name);
            lines.extend(named.flat_map(|object: &Hashed| object.hash_lines_for(&[&secret.key])));
        }
    }
    lines
}

/// The newest probe of a storage, and the time of the next one.
struct ProbeState<'a> {
    request: &'a Request,
    /// None if no probe is wanted.
    probe: Option<&'a Probe>,
    newest: Option<Probed>,
    is_observed: bool,
    is_due: bool,
    /// True if the settings have changed since the newest probe.
    is_stale: bool,
    /// The stored result, if it is for the newest probe's settings.
    last: Option<Condition>,
    /// The time until the next probe.
    wait: Option<std::time::Duration>,
}

impl<'a> ProbeState<'a> {
    /// Reads the Job.
    fn read(
        request: &'a Request,
        host: &dyn Host,
        probe: Option<&'a Probe>,
    ) -> Result<Self, Fault> {
        let stored: StorageStatus = request.stored_status().unwrap_or_default();
        let stored = stored.probe.filter(|_| probe.is_some());
        let newest = match probe {
            Some(_) => task::newest(request, host, Kind::Probe, stored.clone(), probed)?,
            None => None,
        };
        let job = request
            .children
            .find::<Job>(&suffixed(request, Kind::Probe));
        let settings = |probe: &Option<Probed>| Some(probe.as_ref()?.config_hash.clone());
        let last = task::last_result(request, "Available", &["Stored", "ProbeFailed"])
            .filter(|_| settings(&stored) == settings(&newest));
        Ok(Self {
            request,
            probe,
            last,
            newest,
            is_observed: probe.is_some() && job.is_some(),
            is_due: false,
            is_stale: false,
            wait: None,
        })
    }

    /// Decides on the next probe.
    ///
    /// The guest asks for the time only when nothing else makes a probe due, because the host remembers no pass that asks
    /// for it.
    fn decide(&mut self, host: &dyn Host, probe: &Probe, key: &str) {
        let newest = self.newest.as_ref();
        self.is_stale = newest.is_some_and(|probe| probe.config_hash != key);
        self.is_due = match newest {
            None => true,
            // The next probe covers changes during a running probe.
            Some(newest) if !newest.phase.is_terminal() => false,
            Some(_) if self.is_stale => true,
            Some(newest) => {
                let period = match newest.phase {
                    Phase::Succeeded => SignedDuration::from_hours(probe.every_hours),
                    _ => AFTER_FAILURE,
                };
                self.wait = remaining_time(host, newest.completion_time.as_deref(), period);
                self.wait.is_none()
            }
        };
    }

    fn children(&self, plan: &Plan<'_>, key: &str) -> Vec<Child> {
        let config = Kinds::child("config", &children::secret(plan));
        // The host deletes the last Job before the next one is made.
        let job = (self.is_due != self.is_observed).then(|| {
            let name = suffixed(plan.request, Kind::Probe);
            let annotations = [(CONFIG_HASH, key.to_owned())];
            let spec = children::job_spec(plan);
            task::child(plan, "probe", &name, annotations, spec, ["config"])
        });
        std::iter::once(config).chain(job).collect()
    }

    fn report(&self, blocked: Option<(&str, &str)>) -> Report {
        let status = StorageStatus {
            probe: self.newest.clone(),
            observed_generation: self.request.generation(),
        };
        let available = self.probe.map(|_| self.available(blocked));
        let ready = match (&available, blocked) {
            (None, None) => {
                let message = "the settings are valid; spec.probe tests the storage itself";
                Condition::new("Ready", true, "Valid", message)
            }
            (None, Some((reason, message))) => Condition::new("Ready", false, reason, message),
            (Some(available), _) if available.status == ConditionStatus::Unknown => {
                Condition::new("Ready", false, "Pending", &available.message)
            }
            (Some(available), _) => {
                let is_available = available.status == ConditionStatus::True;
                let reason = if is_available {
                    "Available"
                } else {
                    &available.reason
                };
                Condition::new("Ready", is_available, reason, &available.message)
            }
        };
        let event = available
            .as_ref()
            .and_then(|condition| self.event(condition));
        let report = Report::new()
            .status(&status)
            .conditions(std::iter::once(ready).chain(available))
            .events(event);
        match self.wait {
            Some(wait) => report.requeue(wait),
            None => report,
        }
    }

    /// Returns the condition `Available`. It keeps the last result during the next probe with the same settings.
    fn available(&self, blocked: Option<(&str, &str)>) -> Condition {
        if let Some((reason, message)) = blocked {
            return Condition::new("Available", false, reason, message);
        }
        let unknown = ConditionStatus::Unknown;
        match &self.newest {
            Some(_) if self.is_stale => {
                let message = "the settings have changed since the last probe";
                Condition::new("Available", unknown, "NotProbedYet", message)
            }
            Some(newest) if newest.phase == Phase::Succeeded => Condition::new(
                "Available",
                true,
                "Stored",
                "the last probe stored its archive",
            ),
            Some(newest) if newest.phase == Phase::Failed => {
                let message = newest.message.as_deref().unwrap_or_default();
                Condition::new("Available", false, "ProbeFailed", message)
            }
            _ => self.last.clone().unwrap_or_else(|| {
                let message = "the first probe has not ended yet";
                Condition::new("Available", unknown, "NotProbedYet", message)
            }),
        }
    }

    fn event(&self, available: &Condition) -> Option<Event> {
        if !self.request.is_transition(available) {
            return None;
        }
        match available.status {
            ConditionStatus::True => Some(Event::normal("StorageAvailable", &available.message)),
            ConditionStatus::False => Some(Event::warning(&available.reason, &available.message)),
            ConditionStatus::Unknown => None,
        }
    }
}

/// Returns the remaining time of a period; none if it is over.
fn remaining_time(
    host: &dyn Host,
    since: Option<&str>,
    period: SignedDuration,
) -> Option<std::time::Duration> {
    let since: Timestamp = since?.parse().ok()?;
    let now = i64::try_from(host.now_ms()).ok()?;
    let now = Timestamp::from_millisecond(now).ok()?;
    let remaining = since.checked_add(period).ok()?.duration_since(now);
    // A requeue time of zero would mean none.
    let remaining = std::time::Duration::try_from(remaining).ok()?;
    (!remaining.is_zero()).then(|| remaining + std::time::Duration::from_millis(1))
}

impl Record for Probed {
    fn is_of(&self, task: &Task) -> bool {
        self.job_uid == task.uid
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    /// The next probe starts immediately, because this one has no completion time.
    fn fail(&mut self, message: &str) {
        self.phase = Phase::Failed;
        self.message = Some(message.to_owned());
    }
}

/// Returns the probe that a Job shows.
fn probed(task: &Task, termination_message: Option<&str>) -> Probed {
    Probed {
        phase: task.phase,
        job_uid: task.uid.clone(),
        config_hash: task.annotation(CONFIG_HASH).to_owned(),
        completion_time: task.completion_time.clone(),
        message: task.failure(termination_message),
    }
}
