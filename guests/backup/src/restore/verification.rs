//! Verifies a parent's archives: a Job restores one into scratch databases.
//!
//! It is a restoration with the parent's settings. Only the archives' times decide when one is due, so no pass depends
//! on the clock. A Job stays until the next one, and a Job that a user deletes is not created again.

use innkeeper_sdk::prelude::*;
use k8s_openapi::{
    api::batch::v1::Job,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::{Value, json};

use super::{
    children::{self, FILE, RESTORED, SKIPPED, TIME},
    chosen, config_key, inside, origin,
    target::is_file,
};
use crate::{
    api::{
        Kind, Parent,
        restore::{BackupKind, BackupReference, RestoreSpec, Verify, deadline},
    },
    config::Config,
    names::{component, secret_name, suffixed},
    references::{self, SCRATCH, Source},
    render,
    runs::History,
    status::{BackupStatus, Phase, Run, Verified, newest_archive},
    stop::Stop,
    task::{self, Record, Task},
};

/// Directory in the Pod below which files are restored.
pub(super) const DIRECTORY: &str = "/work/scratch";

/// How early an archive may be: scheduled runs do not take the same time each day.
const EARLY: SignedDuration = SignedDuration::from_hours(1);

/// Reasons of `Verified` after a verification.
const RESULTS: [&str; 3] = ["Restored", "PartlyVerified", "VerificationFailed"];

/// An archive and the end of the run.
type Archive = (String, Option<String>);

/// The verification of one parent.
pub(crate) struct Verification<'a> {
    request: &'a Request,
    verify: &'a Verify,
    kind: Kind,
    /// The newest verification, and the one that an earlier pass stored.
    pub(crate) newest: Option<Verified>,
    stored: Option<Verified>,
    is_observed: bool,
    /// The archive to verify next.
    due: Option<Archive>,
    /// The cause for which it cannot be verified.
    pub(crate) blocked: Option<(&'static str, String)>,
}

impl<'a> Verification<'a> {
    /// Reads the Job and decides on the next archive; none for a parent that asks for no verification.
    pub(crate) fn read(
        request: &'a Request,
        host: &dyn Host,
        parent: &'a Parent,
        history: &History,
        stored: &BackupStatus,
    ) -> Result<Option<Self>, Fault> {
        let Some(verify) = &parent.spec.verify else {
            return Ok(None);
        };
        let kind = parent.kind.verification();
        let stored = stored.verification.clone();
        let newest = task::newest(request, host, kind, stored.clone(), verified)?;
        let job = request.children.find::<Job>(&suffixed(request, kind));
        let archive = archive(parent, &history.recent);
        let due = archive
            .filter(|archive| !parent.is_suspended() && is_due(verify, newest.as_ref(), archive));
        Ok(Some(Self {
            request,
            verify,
            kind,
            newest,
            stored,
            is_observed: job.is_some(),
            due,
            blocked: None,
        }))
    }

    /// The children. A cause for which there are none is kept for the report: the runs go on.
    pub(crate) fn children(
        &mut self,
        host: &dyn Host,
        parent: &Parent,
        config: &Config,
    ) -> Result<Vec<Child>, Stop> {
        match (&self.due, self.is_observed) {
            (None, true) => Ok(self.held_children()),
            // The host deletes the last archive's Job first.
            (None, false) | (Some(_), true) => Ok(Vec::new()),
            (Some(archive), false) => match self.new_children(host, parent, config, archive) {
                Ok(children) => Ok(children),
                Err(Stop::Fault(fault)) => Err(Stop::Fault(fault)),
                Err(Stop::Blocked { reason, message }) => {
                    self.blocked = Some((reason, message));
                    Ok(Vec::new())
                }
                Err(Stop::Invalid(message)) => {
                    self.blocked = Some(("Invalid", message));
                    Ok(Vec::new())
                }
            },
        }
    }

    /// The observed children as they are.
    fn held_children(&self) -> Vec<Child> {
        let request = self.request;
        let kind = self.kind;
        let secret = ("v1", "Secret", config_key(kind), secret_name(request, kind));
        let job = ("batch/v1", "Job", component(kind), suffixed(request, kind));
        [secret, job]
            .into_iter()
            .filter(|(version, kind, _, name)| {
                request.children.find_as(version, kind, name).is_some()
            })
            .map(|(version, kind, key, name)| {
                let object =
                    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
                Child::untyped(key, &object).hold()
            })
            .collect()
    }

    /// The children for an archive.
    fn new_children(
        &self,
        host: &dyn Host,
        parent: &Parent,
        config: &Config,
        (file, time): &Archive,
    ) -> Result<Vec<Child>, Stop> {
        let request = self.request;
        let verify = self.verify;
        let mut parent = parent.clone();
        parent.kind = self.kind;
        inside(file)?;
        let mut spec = spec(request, &parent, verify, file);
        // Without the archives' path, which only matters for storages.
        let dumped = references::read(request, host, &parent, "")?.databases;
        let files: Vec<String> = dumped
            .iter()
            .filter(|database| is_file(database))
            .map(|database| database.name.clone())
            .collect();
        spec.databases.get_or_insert_default().extend(files.clone());
        let chosen = chosen(&parent, &spec)?;
        let references = parent
            .databases()
            .iter()
            .map(|database| database.name.as_str());
        let is_listed = |name: &&str| {
            verify
                .databases
                .iter()
                .any(|scratch| scratch.database == *name)
                || files.iter().any(|file| file == name)
        };
        let (mut restored, skipped): (Vec<_>, Vec<_>) = references.partition(is_listed);
        let (effective, origin, _) = origin(request, host, &parent, &spec, config, chosen)?;
        for source in origin
            .related
            .databases
            .iter()
            .filter(|database| !is_file(database))
        {
            check_scratch(source, &dumped, request.namespace())?;
        }
        let restoration = origin.restoration(request, host, &spec, config, &effective)?;
        restored.extend(restoration.directory.as_ref().map(|_| "files"));
        // The dump names, not the scratch database names.
        let annotations = [
            (RESTORED, restored.join(",")),
            (TIME, time.clone().unwrap_or_default()),
            (SKIPPED, skipped.join(",")),
        ];
        Ok(children::children(&restoration, annotations))
    }

    /// The condition `Verified`. It keeps the last result during the next verification.
    pub(crate) fn condition(&self) -> Condition {
        let condition = |status: bool, reason: &str, message: &str| {
            Condition::new("Verified", status, reason, message)
        };
        if let Some((reason, message)) = &self.blocked {
            return condition(false, reason, message);
        }
        match &self.newest {
            Some(newest) if newest.phase == Phase::Failed => {
                let message = newest.message.as_deref().unwrap_or_default();
                condition(
                    false,
                    "VerificationFailed",
                    &format!("{}: {message}", newest.file),
                )
            }
            Some(newest) if newest.phase == Phase::Succeeded => {
                let restored = match &*newest.restored.join(", ") {
                    "" => "unpacked".to_owned(),
                    names => format!("restored {names}"),
                };
                let done = format!("{}: {restored}", newest.file);
                if newest.skipped.is_empty() {
                    return condition(true, "Restored", &done);
                }
                let message = format!(
                    "{done}; not restored: {}; name a scratch database in verify.databases, if the type has one",
                    newest.skipped.join(", ")
                );
                condition(false, "PartlyVerified", &message)
            }
            _ => task::last_result(self.request, "Verified", &RESULTS).unwrap_or_else(|| {
                let message = "no archive has been verified yet";
                Condition::new(
                    "Verified",
                    ConditionStatus::Unknown,
                    "NotVerifiedYet",
                    message,
                )
            }),
        }
    }

    /// Returns the event for a verification that ended after the last status, or that cannot start.
    pub(crate) fn event(&self, condition: &Condition) -> Option<Event> {
        let is_new = match &self.newest {
            Some(newest) if newest.phase.is_terminal() => Some(newest) != self.stored.as_ref(),
            _ => false,
        };
        let is_blocked = self.blocked.is_some() && self.request.is_transition(condition);
        match condition.reason.as_str() {
            "Restored" | "PartlyVerified" if is_new => {
                Some(Event::normal("VerificationSucceeded", &condition.message))
            }
            reason if is_new || is_blocked => Some(Event::warning(reason, &condition.message)),
            _ => None,
        }
    }
}

/// Checks that a verification may replace a database's content: the owner allows it, and the parent does not dump it
/// under another object or server name.
fn check_scratch(source: &Source, dumped: &[Source], namespace: &str) -> Result<(), Stop> {
    let refused = |problem: String| {
        let kind = source.kind;
        let name = &source.name;
        Err(Stop::invalid_reference(format!("{kind} {name}: {problem}")))
    };
    if !source.is_scratch {
        return refused(format!(
            "a verification replaces this database's content; to allow it, set the annotation {SCRATCH} to true"
        ));
    }
    let Some(scratch) = Place::new(source, namespace) else {
        return Ok(());
    };
    if scratch.database.is_none() {
        return refused(
            "all_databases would replace a whole server; set config.database".to_owned(),
        );
    }
    let is_same = |database: &&Source| {
        Place::new(database, namespace).is_some_and(|place| place.has(&scratch))
    };
    match dumped.iter().find(is_same) {
        Some(database) => refused(format!(
            "it is the database of {} {}, which is dumped; name another database",
            database.kind, database.name
        )),
        None => Ok(()),
    }
}

/// Where a database is. One server has many names, so names of Services are brought into one form.
struct Place {
    is_postgresql: bool,
    host: String,
    port: String,
    /// The database; none for the whole server.
    database: Option<String>,
}

impl Place {
    fn new(source: &Source, namespace: &str) -> Option<Self> {
        let is_postgresql = match source.type_.name {
            "postgresql" => true,
            "mysql" | "mariadb" => false,
            _ => return None,
        };
        let text = |key: &str| match source.config.get(key) {
            Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let port = if is_postgresql { "5432" } else { "3306" };
        let is_all = source.config.get("all_databases") == Some(&Value::Bool(true));
        Some(Self {
            is_postgresql,
            host: host(&text("host").unwrap_or_default(), namespace),
            port: text("port").unwrap_or_else(|| port.to_owned()),
            database: text("database").filter(|_| !is_all),
        })
    }

    /// Returns true if this place contains the other one.
    fn has(&self, other: &Self) -> bool {
        self.is_postgresql == other.is_postgresql
            && (&self.host, &self.port) == (&other.host, &other.port)
            && (self.database.is_none() || self.database == other.database)
    }
}

/// Returns a server's name, for a Service as `<name>.<namespace>`.
fn host(name: &str, namespace: &str) -> String {
    let name = name.to_ascii_lowercase();
    let name = name.trim_end_matches('.');
    let name = name.strip_suffix(".cluster.local").unwrap_or(name);
    let name = name.strip_suffix(".svc").unwrap_or(name);
    match name {
        "" | "127.0.0.1" | "::1" => "localhost".to_owned(),
        "localhost" => name.to_owned(),
        _ if name.contains(['.', ':']) => name.to_owned(),
        _ => format!("{name}.{namespace}"),
    }
}

/// Returns the restoration of an archive with the parent's settings.
fn spec(request: &Request, parent: &Parent, verify: &Verify, file: &str) -> RestoreSpec {
    let own = &parent.spec;
    RestoreSpec {
        backup_ref: BackupReference {
            kind: match parent.kind {
                Kind::CronVerification => BackupKind::CronBackup,
                _ => BackupKind::Backup,
            },
            name: request.name().to_owned(),
        },
        storage: None,
        file: file.to_owned(),
        databases: Some(
            verify
                .databases
                .iter()
                .map(|scratch| scratch.database.clone())
                .collect(),
        ),
        overrides: verify.databases.clone(),
        archive: None,
        confirm: None,
        volumes: Vec::new(),
        work: own.work.clone(),
        image: None,
        transfer_image: verify.transfer_image.clone(),
        image_pull_secrets: own.image_pull_secrets.clone(),
        resources: own.resources.clone(),
        security_context: None,
        pod_template: own.pod_template.clone(),
        run_with: own.run_with.clone(),
        active_deadline_seconds: own.active_deadline_seconds.unwrap_or_else(deadline),
    }
}

/// The newest archive in the first storage.
fn archive(parent: &Parent, runs: &[Run]) -> Option<Archive> {
    let references = parent.storages().iter();
    let key = render::keys(references.map(|storage| storage.name.as_str()))
        .into_iter()
        .next()?;
    let (run, file) = newest_archive(runs, &key)?;
    Some((file.to_owned(), run.completion_time.clone()))
}

/// Returns true if an archive is to be verified after this verification.
fn is_due(verify: &Verify, newest: Option<&Verified>, (file, time): &Archive) -> bool {
    let Some(newest) = newest else {
        return true;
    };
    if !newest.phase.is_terminal() || newest.file == *file {
        return false;
    }
    let parsed = |time: &Option<String>| time.as_ref()?.parse::<Timestamp>().ok();
    match (newest.phase, parsed(&newest.archive_time), parsed(time)) {
        (Phase::Succeeded, Some(last), Some(time)) => {
            let period = SignedDuration::from_hours(24 * verify.every_days);
            time.duration_since(last) >= period - EARLY
        }
        _ => true,
    }
}

impl Record for Verified {
    fn is_of(&self, task: &Task) -> bool {
        self.file == task.annotation(FILE)
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn fail(&mut self, message: &str) {
        self.phase = Phase::Failed;
        self.message = Some(message.to_owned());
    }
}

/// Returns the verification that a Job shows.
fn verified(task: &Task, termination_message: Option<&str>) -> Verified {
    let names = |key: &str| {
        task.annotation(key)
            .split(',')
            .filter(|name| task.phase == Phase::Succeeded && !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Verified {
        phase: task.phase,
        file: task.annotation(FILE).to_owned(),
        archive_time: Some(task.annotation(TIME).to_owned()).filter(|time| !time.is_empty()),
        completion_time: task.completion_time.clone(),
        restored: names(RESTORED),
        skipped: names(SKIPPED),
        message: task.failure(termination_message),
    }
}
