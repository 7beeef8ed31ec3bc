//! Reconciles a `Restore`: one Job fetches a parent's archive and restores it.
//!
//! The spec never changes, and the end is final. Until then, a missing or broken reference only delays the Job. Objects
//! are read, checked and rendered as for a run, with the targets in place of the parent's databases; only the Pod's
//! programs differ.

use innkeeper_kit::{prelude::*, tenants::check_image};
use serde_json::Value;

use crate::{
    api::{
        ArchiveSettings, Encryption, Kind, LocalVolume, Parent, Reference, Root, State, StateMode,
        restore::{LATEST, Restore, RestoreSpec},
    },
    config::Config,
    names::default_local_claim,
    plan::Plan,
    references::{self, Source},
    render::{self, LocalStorage},
    status::{BackupStatus, newest_archive},
    stop::Stop,
    tenants, validate,
};

mod children;
mod chosen;
mod pod;
mod remote;
mod report;
mod script;
mod target;
mod verification;

use chosen::{chosen, confirmed, storage};
use remote::Remote;
use report::Reporter;
use target::{Target, target};
pub(crate) use verification::Verification;

/// The desired state for one restoration.
struct Restoration<'a> {
    spec: &'a RestoreSpec,
    plan: Plan<'a>,
    targets: Vec<Target>,
    remote: Remote,
    /// Local storages in the parent's claim.
    local: Vec<LocalStorage>,
    encryption: Option<Encryption>,
    /// Key of the parent in the archive.
    model: String,
    file: String,
    /// The directory below which files are restored.
    directory: Option<String>,
}

impl Restoration<'_> {
    /// The restored databases by their names, and the files.
    fn restored(&self) -> Vec<String> {
        let names = self.targets.iter().map(|target| target.source.name.clone());
        let files = self.directory.iter().map(|_| "files".to_owned());
        names.chain(files).collect()
    }

    /// Returns true for a verification, which replaces the content of scratch databases.
    fn is_verification(&self) -> bool {
        self.plan.parent.kind != Kind::Restore
    }
}

/// A parent and the stored status, which an older version may have stored in another form.
#[derive(Deserialize)]
struct Stored {
    #[serde(flatten)]
    root: Root,
    #[serde(default)]
    status: Value,
}

/// The answer for a `Restore`.
pub(crate) fn reconcile(
    restore: &Restore,
    request: &Request,
    host: &dyn Host,
    config: &Config,
) -> Result<Answer, Fault> {
    let reporter = Reporter::read(request, host)?;
    // Until the Job is gone, it is stated as before.
    if reporter.has_ended() && !reporter.is_observed() {
        return Ok(Answer::keep(reporter.report(None, None)));
    }
    let plan = plan(request, host, &restore.spec, config, &reporter);
    let children = plan.and_then(|(parent, origin)| {
        let restoration = origin.restoration(request, host, &restore.spec, config, &parent)?;
        let children = children::children(&restoration, []);
        Ok((children, restoration.file))
    });
    match children {
        Ok((children, file)) => {
            let report = reporter.report(Some(&file), None);
            Ok(Desired { children, report }.into())
        }
        Err(Stop::Blocked { .. } | Stop::Invalid(_)) if reporter.has_ended() => {
            Ok(Answer::keep(reporter.report(None, None)))
        }
        Err(stop) => stop.outcome(|reason, message| reporter.report(None, Some((reason, message)))),
    }
}

/// The parent's part of a restoration.
struct Origin {
    encryption: Option<Encryption>,
    settings: ArchiveSettings,
    related: references::Related,
    keys: Vec<String>,
    model: String,
    file: String,
}

/// Reads the parent and all objects for the restoration.
fn plan(
    request: &Request,
    host: &dyn Host,
    spec: &RestoreSpec,
    config: &Config,
    reporter: &Reporter<'_>,
) -> Result<(Parent, Origin), Stop> {
    let kind = spec.backup_ref.kind.as_str();
    let name = &spec.backup_ref.name;
    let namespace = Some(request.namespace());
    let stored: Option<Stored> = match host.get_as("gobackup.io/v1", kind, namespace, name) {
        Err(ReadError::Unreadable { problem, .. }) => {
            return Err(Stop::invalid_reference(format!("{kind} {name}: {problem}")));
        }
        read => read?,
    };
    let Some(Stored { root, status }) = stored else {
        let message = format!("{kind} not found: {name}");
        return Err(Stop::blocked("ReferenceNotFound", message));
    };
    let status: BackupStatus = serde_json::from_value(status).unwrap_or_default();
    let backup = Parent::new(Kind::Restore, root);
    let chosen = chosen(&backup, spec)?;
    if chosen.is_empty() && spec.archive.is_none() {
        let problem = "databases or archive: there is nothing to restore";
        return Err(Stop::Invalid(problem.to_owned()));
    }
    // The spec does not change, and the parent will record this Restore soon.
    if reporter.file().is_none() {
        confirmed(request, &chosen, spec, &status.restores)?;
    }
    let (parent, mut origin, storage_key) = origin(request, host, &backup, spec, config, chosen)?;
    origin.file = match (&reporter.file(), spec.file.as_str()) {
        (Some(file), _) => file.clone(),
        (None, LATEST) => newest(&status, kind, name, &storage_key)?,
        (None, file) => file.to_owned(),
    };
    inside(&origin.file)?;
    Ok((parent, origin))
}

/// Checks that an archive name stays inside the archives' directory.
fn inside(file: &str) -> Result<(), Stop> {
    if file.split('/').any(|part| part == "..") {
        return Err(Stop::Invalid(format!("file: {file} has the part ..")));
    }
    Ok(())
}

/// Reads all objects for a restoration, and returns it with the storage key.
fn origin(
    request: &Request,
    host: &dyn Host,
    backup: &Parent,
    spec: &RestoreSpec,
    config: &Config,
    chosen: Vec<(String, Reference)>,
) -> Result<(Parent, Origin, String), Stop> {
    let name = &spec.backup_ref.name;
    let (storage, storage_key) = storage(backup, spec)?;
    let mut parent = effective(backup, spec, &chosen, storage);
    if backup.kind == Kind::Restore {
        tenants::remove_account(&mut parent.spec, &config.tenants);
    }
    files(spec)?;
    if let Some(image) = &spec.transfer_image {
        let listed = &config.tenants.images;
        let field = match backup.kind {
            Kind::Restore => "spec.transferImage",
            _ => "spec.verify.transferImage",
        };
        check_image(field, image, listed)?;
    }
    let kind = spec.backup_ref.kind.as_str().to_ascii_lowercase();
    let path = config.path_of(request.namespace(), &kind, name);
    let mut related = references::read(request, host, &parent, &path)?;
    mount_archives(&mut parent, backup, name, &related.storages[0]);
    // After the last change to the parent. The stored backup may be one that the plugin refuses.
    validate::mounts(&parent)?;
    let limits = &config.tenants;
    tenants::check_parent(&parent, limits)?;
    let mut settings = parent.spec.settings.or(&related.model);
    tenants::check_settings(&settings, limits).map_err(|problem| {
        let kind = spec.backup_ref.kind.as_str();
        Stop::invalid_reference(format!("{kind} {name}: {problem}"))
    })?;
    tenants::check_arguments(&related.databases, &parent, limits)?;
    tenants::remove_scripts(&mut settings, &mut related.databases, limits);
    let encryption = settings.encode_with.clone();
    let origin = Origin {
        encryption: encryption.filter(render::is_encrypting),
        settings,
        related,
        keys: chosen.into_iter().map(|dump| dump.0).collect(),
        model: render::key_of(name),
        file: spec.file.clone(),
    };
    Ok((parent, origin, storage_key))
}

/// Returns the parent with the fields of the restoration.
fn effective(
    backup: &Parent,
    spec: &RestoreSpec,
    chosen: &[(String, Reference)],
    storage: Reference,
) -> Parent {
    let mut parent = backup.clone();
    let effective = &mut parent.spec;
    effective.database_refs = Some(chosen.iter().map(|dump| dump.1.clone()).collect());
    effective.storage_refs = Some(vec![storage]);
    effective.default_storage = None;
    effective.schedule = None;
    effective.suspend = false;
    effective.env = Vec::new();
    effective.env_from = Vec::new();
    effective.expand_env = false;
    effective.local_volume = None;
    // A restoration stores nothing, so it needs no list of archives.
    effective.state = Some(State {
        mode: StateMode::Ephemeral,
        ..State::default()
    });
    effective.pod_template.clone_from(&spec.pod_template);
    effective.run_with.clone_from(&spec.run_with);
    effective.work.clone_from(&spec.work);
    effective.resources.clone_from(&spec.resources);
    effective
        .image_pull_secrets
        .clone_from(&spec.image_pull_secrets);
    effective.image = spec.image.clone().or_else(|| effective.image.clone());
    let user = spec.security_context.clone();
    effective.security_context = user.or_else(|| effective.security_context.clone());
    effective.volumes.clone_from(&spec.volumes);
    parent.schedule = None;
    parent
}

impl Origin {
    fn restoration<'a>(
        self,
        request: &'a Request,
        host: &dyn Host,
        spec: &'a RestoreSpec,
        config: &'a Config,
        parent: &'a Parent,
    ) -> Result<Restoration<'a>, Stop> {
        let mut targets = Vec::new();
        for (index, (source, key)) in self.related.databases.iter().zip(self.keys).enumerate() {
            targets.push(target(source, index, key, parent)?);
        }
        let source = &self.related.storages[0];
        let mut remote = remote::remote(source)?;
        let mut settings = self.settings;
        let has_files = settings.archive.take().is_some();
        // gobackup does not run here, so what only it uses needs neither checks nor credentials.
        settings.notifiers = None;
        settings.split_with = None;
        let rendered = render::render(request.name(), parent, &settings, &self.related)?;
        let owner = spec.backup_ref.claimant(request.namespace());
        let limits = &config.tenants;
        tenants::check_references(request, host, parent, &rendered, Some(owner), limits)?;
        let local = rendered.local.clone();
        if let Some(local) = local.first() {
            remote.directory.clone_from(&local.path);
        }
        let plan = Plan {
            request,
            parent,
            config,
            schedule: None,
            rendered,
        };
        validate::locals(plan.claimed_locals())?;
        tenants::check_local(plan.claimed_locals(), limits)?;
        let directory = match &spec.archive {
            Some(files) => Some(files.target_path.clone()),
            None => (parent.kind != Kind::Restore && has_files)
                .then(|| verification::DIRECTORY.to_owned()),
        };
        let local = plan.claimed_locals().cloned().collect();
        Ok(Restoration {
            spec,
            plan,
            targets,
            remote,
            local,
            encryption: self.encryption,
            model: self.model,
            file: self.file,
            directory,
        })
    }
}

/// Checks the directory for restored files.
fn files(spec: &RestoreSpec) -> Result<(), Stop> {
    let Some(files) = &spec.archive else {
        return Ok(());
    };
    let path = &files.target_path;
    let is_climbing = path.split('/').any(|part| part == "..");
    let mut volumes = spec.volumes.iter();
    if !is_climbing && volumes.any(|volume| volume.holds(path) && !volume.read_only) {
        return Ok(());
    }
    Err(Stop::Invalid(format!(
        "archive.targetPath: {path} is not inside a mount in spec.volumes with readOnly: false"
    )))
}

/// Returns the newest archive in a storage.
fn newest(status: &BackupStatus, kind: &str, name: &str, storage: &str) -> Result<String, Stop> {
    let archive = newest_archive(&status.recent_runs, storage);
    archive.map(|(_, file)| file.to_owned()).ok_or_else(|| {
        let message = format!(
            "{kind} {name} has no successful run with an archive in {storage}; set spec.file"
        );
        Stop::blocked("FileNotFound", message)
    })
}

/// Mounts the backup's volume or claim with local archives.
fn mount_archives(parent: &mut Parent, backup: &Parent, name: &str, storage: &Source) {
    let path = storage.config.get("path").and_then(Value::as_str);
    let Some(path) = path.filter(|_| storage.type_.name == "local") else {
        return;
    };
    let spec = &mut parent.spec;
    if spec.volumes.iter().any(|volume| volume.holds(path)) {
        return;
    }
    let mut theirs = backup.spec.volumes.iter();
    if let Some(volume) = theirs.find(|volume| volume.holds(path)) {
        let mut volume = volume.clone();
        // With the prefix for users' volumes, the longest name has the 63 characters of a label.
        volume.name = format!("{}-archive", volume.name);
        volume.read_only = true;
        spec.volumes.push(volume);
        return;
    }
    let volume = backup.spec.local_volume.clone().unwrap_or_default();
    spec.local_volume = Some(LocalVolume {
        claim_name: volume
            .claim_name
            .or_else(|| Some(default_local_claim(name))),
        ..volume
    });
}

/// Returns the Secret's key; the Job's key is the component.
const fn config_key(kind: Kind) -> &'static str {
    match kind {
        Kind::Restore => "config",
        _ => "verify-config",
    }
}
