//! The probe of a `Storage`: a Job that stores a small archive in it.
//!
//! It is a run of gobackup with one storage, and with its own configuration as the only file, so the image, the script,
//! the credentials and the limits for tenants are those of a run. A probe begins when the `Storage` or a key of a Secret
//! has changed since the last one, and after a period. Its last Job stays until the next one.

use innkeeper_kit::references::Found;
use innkeeper_sdk::{
    hash::{Hashed, hash_lines},
    prelude::*,
};
use k8s_openapi::{
    api::batch::v1::Job,
    jiff::{SignedDuration, Timestamp},
};

use crate::{
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

/// The name of the archive, without its extension. Each probe replaces that of the last one.
const ARCHIVE: &str = "gobackup-probe";

/// The start of the model's name. No object has a name with two dots in a row, so no parent shares the list of archives.
const MODEL: &str = "probe..";

/// The maximum duration of a probe in seconds, with the time in which a node pulls the image.
const DEADLINE_SECONDS: i64 = 600;

/// The time after which a failed probe is made again.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_hours(1);

/// The answer for a `Storage`.
pub(crate) fn reconcile(request: &Request, host: &dyn Host) -> Result<Outcome, Fault> {
    let storage: Storage = request.parent()?;
    let config: Config = request.config()?;
    let parent = parent(storage.spec.probe.as_ref());
    let mut state = ProbeState::read(request, host, storage.spec.probe.as_ref())?;
    let answer = rendered(request, &parent, &storage, &config).and_then(|rendered| {
        let Some(given) = &storage.spec.probe else {
            return Ok(Vec::new());
        };
        let plan = Plan {
            request,
            parent: &parent,
            config: &config,
            schedule: None,
            rendered,
        };
        let key = checked(&plan, host, given)?;
        state.decide(host, given, &key);
        Ok(state.children(&plan, &key))
    });
    match answer {
        Ok(children) => Ok(Outcome::desired(children, state.report(None))),
        Err(stop) => stop.outcome(|reason, message| state.report(Some((reason, message)))),
    }
}

/// The parent of a run that stores the archive of the probe.
fn parent(given: Option<&Probe>) -> Parent {
    let spec = BackupSpec {
        // The next probe needs no list of archives, because it replaces the archive of this one.
        state: Some(State {
            mode: StateMode::Ephemeral,
            ..State::default()
        }),
        pod_template: given.and_then(|it| it.pod_template.clone()),
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

/// The configuration of the probe. An error lies in the `Storage`.
fn rendered(
    request: &Request,
    parent: &Parent,
    storage: &Storage,
    config: &Config,
) -> Result<Rendered, Stop> {
    // Below the same path as the archives, because credentials may be those of this path alone.
    let path = config.path_of(request.namespace(), lower(parent.kind), request.name());
    let mut source = references::own(request.name(), &storage.spec, &path)?;
    source.config.remove("keep");
    // gobackup replaces no object of gcs, so there each archive has a name of its own.
    let is_replaced = source.type_.name != "gcs";
    let settings = ArchiveSettings {
        compress_with: Some(Compression {
            filename_format: is_replaced.then(|| ARCHIVE.to_owned()),
            ..Compression::default()
        }),
        // Each run has this file, and it has no credential.
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

/// Checks the limits for tenants as for a run, and returns the key of the probe, which changes with each setting.
fn checked(plan: &Plan<'_>, host: &dyn Host, given: &Probe) -> Result<String, Stop> {
    let (request, limits) = (plan.request, &plan.config.tenants);
    if let Some(template) = &given.pod_template {
        let checked = template.check("spec.probe.podTemplate", &limits.pod_template());
        checked.map_err(Stop::Invalid)?;
    }
    crate::tenants::check_parent(plan.parent, limits)?;
    let found =
        crate::tenants::check_references(request, host, plan.parent, &plan.rendered, None, limits)?;
    let own = [
        format!("generation={}", request.generation()),
        format!("image={}", plan.config.images.gobackup),
    ];
    let path = &plan.config.storage_path;
    let path = (!path.is_empty()).then(|| format!("path={path}"));
    let own = own.into_iter().chain(path);
    Ok(hash_lines(own.chain(credentials(&plan.rendered, &found))))
}

/// The hashes of the keys of Secrets that the storage names.
fn credentials(rendered: &Rendered, found: &Found) -> Vec<String> {
    let mut lines = Vec::new();
    for credential in &rendered.credentials {
        if let Origin::Secret(secret) = &credential.origin {
            let named = found.objects().filter(|it| it.name() == secret.name);
            lines.extend(named.flat_map(|it: &Hashed| it.hash_lines_for(&[&secret.key])));
        }
    }
    lines
}

/// The newest probe of a storage, and the time of the next one.
struct ProbeState<'a> {
    request: &'a Request,
    /// None if no probe is wanted.
    given: Option<&'a Probe>,
    newest: Option<Probed>,
    is_observed: bool,
    is_due: bool,
    /// True if the settings have changed since the newest probe.
    is_stale: bool,
    /// The stored result, if it is of the same settings as the newest probe.
    last: Option<Condition>,
    /// The time until the next probe.
    wait: Option<std::time::Duration>,
}

impl<'a> ProbeState<'a> {
    /// Reads the Job.
    fn read(
        request: &'a Request,
        host: &dyn Host,
        given: Option<&'a Probe>,
    ) -> Result<Self, Fault> {
        let stored: StorageStatus = request.stored_status().unwrap_or_default();
        let stored = stored.probe.filter(|_| given.is_some());
        let newest = match given {
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
            given,
            last,
            newest,
            is_observed: given.is_some() && job.is_some(),
            is_due: false,
            is_stale: false,
            wait: None,
        })
    }

    /// Decides on the next probe.
    ///
    /// The guest asks for the time only when nothing else makes a probe due, because the host remembers no pass that asks
    /// for it.
    fn decide(&mut self, host: &dyn Host, given: &Probe, key: &str) {
        let newest = self.newest.as_ref();
        self.is_stale = newest.is_some_and(|it| it.config_hash != key);
        self.is_due = match newest {
            None => true,
            // The changes of a running probe are those of the next one.
            Some(it) if !it.phase.is_terminal() => false,
            Some(_) if self.is_stale => true,
            Some(it) => {
                let period = match it.phase {
                    Phase::Succeeded => SignedDuration::from_hours(given.every_hours),
                    _ => AFTER_FAILURE,
                };
                self.wait = left(host, it.completion_time.as_deref(), period);
                self.wait.is_none()
            }
        };
    }

    fn children(&self, plan: &Plan<'_>, key: &str) -> Vec<Child> {
        let config = Child::new("config", &children::secret(plan));
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
        let available = self.given.map(|_| self.available(blocked));
        let ready = match (&available, blocked) {
            (None, None) => {
                let message = "the settings are valid; spec.probe tests the storage itself";
                Condition::new("Ready", true, "Valid", message)
            }
            (None, Some((reason, message))) => Condition::new("Ready", false, reason, message),
            (Some(it), _) if it.status == ConditionStatus::Unknown => {
                Condition::new("Ready", false, "Pending", &it.message)
            }
            (Some(it), _) => {
                let is_available = it.status == ConditionStatus::True;
                let reason = if is_available {
                    "Available"
                } else {
                    &it.reason
                };
                Condition::new("Ready", is_available, reason, &it.message)
            }
        };
        let event = available.as_ref().and_then(|it| self.event(it));
        let report = Report::new()
            .status(&status)
            .conditions(std::iter::once(ready).chain(available))
            .events(event);
        match self.wait {
            Some(wait) => report.requeue(wait),
            None => report,
        }
    }

    /// The condition `Available`. It keeps the last result during the next probe of the same settings.
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
            Some(it) if it.phase == Phase::Succeeded => Condition::new(
                "Available",
                true,
                "Stored",
                "the last probe stored its archive",
            ),
            Some(it) if it.phase == Phase::Failed => {
                let message = it.message.as_deref().unwrap_or_default();
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

/// The time that is left of a period; none if it is over.
fn left(
    host: &dyn Host,
    since: Option<&str>,
    period: SignedDuration,
) -> Option<std::time::Duration> {
    let since: Timestamp = since?.parse().ok()?;
    let now = i64::try_from(host.now_ms()).ok()?;
    let now = Timestamp::from_millisecond(now).ok()?;
    let left = since.checked_add(period).ok()?.duration_since(now);
    // A time of zero would be none.
    let left = std::time::Duration::try_from(left).ok()?;
    (!left.is_zero()).then(|| left + std::time::Duration::from_millis(1))
}

impl Record for Probed {
    fn is_of(&self, task: &Task) -> bool {
        self.job_uid == task.uid
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    /// The next probe starts at once, because this one has no completion time.
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
