//! The conditions; for each type, the first match wins.

use innkeeper_sdk::prelude::*;

use super::unapplied::Unapplied;
use crate::{
    children::{Hashes, SALT_KEYS, has_changed_credentials},
    observe::{Failure, Observation},
    site::{RESTART_TRIGGER, Site},
};

/// All conditions that apply.
pub(super) fn conditions(
    site: &Site<'_>,
    observation: &Observation,
    hashes: &Hashes,
    unapplied: Option<&Unapplied>,
) -> Vec<Condition> {
    let view = View {
        unapplied,
        ..View::new(site, observation, hashes)
    };
    let database = view.database();
    let degraded = view.degraded(&database);
    let ready = view.ready(&degraded);
    [
        database,
        view.available(),
        view.progressing(),
        degraded,
        ready,
        view.data_persistent(),
    ]
    .into_iter()
    .chain(view.open_installer())
    .chain(view.plaintext_password())
    .chain(view.changed_credentials())
    .collect()
}

/// The inputs for the conditions.
struct View<'a> {
    site: &'a Site<'a>,
    observation: &'a Observation,
    hashes: &'a Hashes,
    unapplied: Option<&'a Unapplied>,
    /// Desired, ready, updated and existing replicas.
    replicas: i32,
    ready: i32,
    updated: i32,
    total: i32,
}

impl<'a> View<'a> {
    fn new(site: &'a Site<'a>, observation: &'a Observation, hashes: &'a Hashes) -> Self {
        let status = observation.pods();
        Self {
            site,
            observation,
            hashes,
            unapplied: None,
            replicas: site.replicas(),
            ready: status.ready_replicas,
            updated: status.updated_replicas,
            total: status.replicas,
        }
    }

    fn database(&self) -> Condition {
        let type_ = "DatabaseReady";
        if let Some((reason, message)) = self.credentials_problem() {
            return Condition::new(type_, false, reason, message);
        }
        let host = self.site.database_host();
        if self.site.managed.is_none() {
            // The readiness page of the site needs the database.
            return if self.ready > 0 {
                let message = format!("the site answers with the database {host}");
                Condition::new(type_, true, "ExternalDatabaseInUse", message)
            } else {
                let message = format!("no replica of the site has reached {host} yet");
                let unknown = ConditionStatus::Unknown;
                Condition::new(type_, unknown, "ExternalDatabaseUnverified", message)
            };
        }
        if self.observation.is_database_ready() {
            Condition::new(type_, true, "DatabaseReady", "the database is ready")
        } else if let Some((reason, message)) = self.database_failure() {
            Condition::new(type_, false, reason, message)
        } else {
            let cause = self
                .database_cause()
                .map(|cause| format!("; {cause}"))
                .unwrap_or_default();
            if self.is_waiting() {
                let message = format!("{}{cause}", self.waiting());
                Condition::new(type_, false, "WaitingForDatabase", message)
            } else {
                let message = format!("the database {host} is not ready{cause}");
                Condition::new(type_, false, "DatabaseUnavailable", message)
            }
        }
    }

    /// Reason and message from the database Pod's own failure report.
    fn database_failure(&self) -> Option<(&'static str, String)> {
        let name = self.site.mysql_name();
        let secret = &self.site.credentials.secret;
        Some(match self.observation.database_pods.failure()? {
            Failure::UserMissing => (
                "UserMissing",
                format!(
                    "the database {name} runs, but the user in Secret {secret} cannot use its schema: create user \
                     and schema in the Pod {name}-0 with the Secret's password, or, if the data may be lost, \
                     delete the claim {name} and the Pod"
                ),
            ),
            Failure::UnusablePassword => (
                "UnusablePassword",
                format!(
                    "the image cannot set a password with an apostrophe or a backslash: use other passwords in Secret {secret}"
                ),
            ),
            Failure::UnsupportedImage => (
                "UnsupportedImage",
                format!(
                    "the image {} has no docker-entrypoint.sh, or neither mysqld nor mariadbd: use an image that \
                     behaves as the official ones of MySQL and MariaDB",
                    self.site.database_image()
                ),
            ),
        })
    }

    /// The `Degraded` reason for a database that is not ready; `None` while it only needs time to start.
    fn database_trouble(&self, database: &Condition) -> Option<&'static str> {
        if self.site.managed.is_none() || self.observation.is_database_ready() {
            return None;
        }
        if let Some((reason, _)) = self.database_failure() {
            return Some(reason);
        }
        let is_down = database.reason == "DatabaseUnavailable" || self.database_cause().is_some();
        is_down.then_some("DatabaseUnavailable")
    }

    /// A claim that did not take the larger size that an earlier pass applied.
    fn claim_that_stays_small(&self) -> Option<String> {
        let (name, observed, declared) = self.observation.small_claim(self.site)?;
        // Before that, the claim had no chance to grow.
        self.observation.is_restated.then(|| {
            format!(
                "claim {name} stays at {} instead of {}: see Synced; set its size back, or let its storage \
                 class allow expansion",
                observed.0, declared.0
            )
        })
    }

    /// Why the cluster rejects site Pods, including those of a rollout next to ready ones.
    fn replica_failure(&self) -> Option<String> {
        let failure = self.observation.web.as_ref()?.replica_failure()?;
        Some(format!("Pods of the site cannot be created: {failure}"))
    }

    /// Why the database's Pod is missing or not ready, as far as the cluster reports it.
    fn database_cause(&self) -> Option<String> {
        let database = self.observation.database.as_ref()?;
        let name = self.site.mysql_name();
        let pods = &database.status;
        if self.observation.lacks_database_pod {
            return Some(format!(
                "StatefulSet {name} has no Pod: see its events for the cause, such as a quota, a LimitRange or admission"
            ));
        }
        let waiting = self
            .site
            .managed
            .as_ref()
            .and_then(|managed| self.observation.database_pods.late(managed.startup_seconds))
            .or_else(|| self.observation.database_pods.waiting());
        if waiting.is_none() || database.is_parallel() || pods.updated_replicas > 0 {
            return waiting;
        }
        // The StatefulSet waits until the old Pod is ready.
        Some(format!(
            "{}: delete the Pod, so that StatefulSet {name} replaces it",
            waiting.unwrap_or_default()
        ))
    }

    fn available(&self) -> Condition {
        let message = self.ready_of_wanted();
        if self.ready > 0 {
            Condition::new("Available", true, "Available", message)
        } else if self.is_waiting() {
            Condition::new("Available", false, "WaitingForDatabase", self.waiting())
        } else {
            Condition::new("Available", false, "Unavailable", message)
        }
    }

    fn progressing(&self) -> Condition {
        let replicas = self.replicas;
        if self.is_waiting() {
            Condition::new("Progressing", true, "WaitingForDatabase", self.waiting())
        } else if let Some(message) = self.rolling_out() {
            Condition::new("Progressing", true, "Progressing", message)
        } else {
            let message = format!("all {replicas} replicas are updated");
            Condition::new("Progressing", false, "ProgressingComplete", message)
        }
    }

    /// What is left until all site Pods have the desired template; `None` if they have it.
    fn rolling_out(&self) -> Option<String> {
        let web = self.observation.web.as_ref();
        let replicas = self.replicas;
        if web.is_none_or(|web| !web.is_current(&self.hashes.web)) {
            return Some("waiting for the Deployment to be updated".to_owned());
        }
        let updated = format!("{} of {replicas} replicas are updated", self.updated);
        if self.updated < replicas {
            return Some(updated);
        }
        let count = format!("{} replicas exist, {replicas} are requested", self.total);
        (self.total != replicas).then_some(count)
    }

    /// A claim that has not grown to the requested size yet.
    fn growing(&self) -> Option<String> {
        let (name, _, declared) = self.observation.small_claim(self.site)?;
        Some(format!(
            "waiting for claim {name} to grow to {}",
            declared.0
        ))
    }

    /// The same for the managed database.
    fn database_rolling_out(&self) -> Option<String> {
        let template = self.hashes.database.as_ref()?;
        let database = self.observation.database.as_ref();
        let is_old = database.is_none_or(|database| !database.is_rolled_out(template))
            || !self
                .observation
                .record
                .has_image(self.site.database_image());
        is_old.then(|| {
            format!(
                "waiting for the database {} to be updated",
                self.site.mysql_name()
            )
        })
    }

    fn degraded(&self, database: &Condition) -> Condition {
        let (reason, message) = if let Some((reason, message)) = self.secret_problem() {
            (reason, message)
        } else if let Some(message) = self.missing_config_maps() {
            ("ConfigMapNotFound", message)
        } else if let Some(claim) = self.observation.missing_claims(self.site).next() {
            ("ClaimNotFound", format!("claim not found: {claim}"))
        } else if let Some(reason) = self.database_trouble(database) {
            (reason, database.message.clone())
        } else if let Some(message) = self.replica_failure() {
            ("ReplicaFailure", message)
        } else if let Some(message) = self.claim_that_stays_small() {
            ("ClaimNotGrown", message)
        } else if let Some(unapplied) = self.unapplied.filter(|unapplied| unapplied.is_refused) {
            ("ChildNotApplied", unapplied.refused())
        } else if !self.is_waiting() && self.replicas > 0 && self.ready < self.replicas {
            let cause = self
                .observation
                .web_pods
                .waiting()
                .map(|cause| format!("; {cause}"))
                .unwrap_or_default();
            ("Degraded", format!("{}{cause}", self.ready_of_wanted()))
        } else {
            let message = "no problem is known";
            return Condition::new("Degraded", false, "NotDegraded", message);
        };
        Condition::new("Degraded", true, reason, message)
    }

    fn ready(&self, degraded: &Condition) -> Condition {
        if self.observation.is_held(self.site) {
            let message = format!("changes wait: {}", degraded.message);
            return Condition::new("Ready", false, &degraded.reason, message);
        }
        let is_database_ready = self.site.managed.is_none() || self.observation.is_database_ready();
        let is_refused = matches!(&*degraded.reason, "ClaimNotGrown" | "ChildNotApplied");
        let message = if self.replicas == 0 {
            "zero replicas are requested".to_owned()
        } else if self.ready >= self.replicas && is_database_ready && !is_refused {
            let rolling_out = self
                .growing()
                .or_else(|| self.database_rolling_out())
                .or_else(|| self.rolling_out())
                .or_else(|| self.unapplied.map(Unapplied::waiting));
            if let Some(message) = rolling_out {
                return Condition::new("Ready", false, "RollingOut", message);
            }
            let message = format!("the site is ready at {}", self.site.home_url());
            return Condition::new("Ready", true, "Ready", message);
        } else if degraded.is_true() {
            degraded.message.clone()
        } else if self.is_waiting() {
            self.waiting()
        } else {
            self.ready_of_wanted()
        };
        Condition::new("Ready", false, "NotReady", message)
    }

    fn data_persistent(&self) -> Condition {
        let owned = &self.observation.owned_data;
        if self.site.policy() == RemovalPolicy::Retain && !owned.is_empty() {
            let list = owned.join(", ");
            let message = format!("{list} have an ownerReference and are deleted with the parent");
            return Condition::new("DataPersistent", false, "OwnedData", message);
        }
        Condition::new(
            "DataPersistent",
            true,
            "Persistent",
            "data outlives the pods",
        )
    }

    /// WordPress makes the first visitor the administrator, and the plugin cannot see whether that has happened.
    fn open_installer(&self) -> Option<Condition> {
        let is_open = self.site.is_published() && !self.site.spec.allow_open_installer;
        let message = format!(
            "unless WordPress is installed, the first visitor of {}/wp-admin/install.php becomes its \
             administrator: set ingress.enabled to false and service.type to ClusterIP, install it \
             through kubectl port-forward, then publish the site and set allowOpenInstaller to true",
            self.site.home_url()
        );
        let unknown = ConditionStatus::Unknown;
        is_open.then(|| Condition::new("Installed", unknown, "OpenInstaller", message))
    }

    fn plaintext_password(&self) -> Option<Condition> {
        self.site.spec.root_password()?;
        let message = format!(
            "the root password is in clear text in the spec; remove it, the Secret {} keeps it",
            self.site.mysql_name()
        );
        Some(Condition::new(
            "PlaintextPassword",
            true,
            "PasswordInSpec",
            message,
        ))
    }

    fn changed_credentials(&self) -> Option<Condition> {
        let message = format!(
            "Secret {} has changed since the site started: set the same passwords in the database, \
             then set the annotation {RESTART_TRIGGER} to another value",
            self.site.credentials.secret
        );
        has_changed_credentials(self.site, self.observation)
            .then(|| Condition::new("CredentialsChanged", true, "SecretChanged", message))
    }

    fn is_waiting(&self) -> bool {
        self.observation.is_waiting(self.site)
    }

    fn waiting(&self) -> String {
        format!("waiting for the database {}", self.site.mysql_name())
    }

    fn ready_of_wanted(&self) -> String {
        let ready = self.ready.min(self.replicas);
        format!("{ready} of {} replicas are ready", self.replicas)
    }

    /// Reason and message for a problem with the database passwords.
    fn credentials_problem(&self) -> Option<(&'static str, String)> {
        let credentials = &self.site.credentials;
        if let Some(lost) = self.lost_credentials() {
            return Some(lost);
        }
        match &self.observation.credentials {
            // This pass creates it.
            None if credentials.is_generated => None,
            None => Some(not_found(&credentials.secret)),
            Some(_) => self.missing_credentials_key(),
        }
    }

    /// Reason and message for a problem with a Secret that the Pods need.
    fn secret_problem(&self) -> Option<(&'static str, String)> {
        if let Some(lost) = self.lost_credentials() {
            return Some(lost);
        }
        let mut missing = self.observation.awaited_secrets(self.site);
        missing.extend(self.observation.tls.missing_secrets());
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.into_iter().collect();
            return Some(not_found(&missing.join(", ")));
        }
        if let Some(problem) = self.missing_credentials_key() {
            return Some(problem);
        }
        let salt = self
            .observation
            .salts
            .as_ref()
            .and_then(|salts| SALT_KEYS.into_iter().find(|key| !salts.has(key)));
        if let Some(key) = salt {
            return Some(incomplete(&self.site.salts_name(), key));
        }
        let (secret, key) = self.observation.references.missing_keys().next()?;
        Some(incomplete(secret, key))
    }

    fn missing_config_maps(&self) -> Option<String> {
        let missing: Vec<&str> = self.observation.references.missing_config_maps().collect();
        (!missing.is_empty()).then(|| format!("ConfigMap not found: {}", missing.join(", ")))
    }

    fn lost_credentials(&self) -> Option<(&'static str, String)> {
        let secret = self.site.mysql_name();
        let message = if self.observation.is_held_for_passwords(self.site) {
            format!(
                "the database holds data, but there is no Secret {secret} with its passwords: set \
                 database.managed.credentialsSecretRef again, or create Secret {secret} with the passwords of \
                 the data"
            )
        } else {
            format!("the database holds data, but Secret {secret} with its passwords is gone")
        };
        self.observation
            .has_lost_credentials(self.site)
            .then_some(("CredentialsLost", message))
    }

    fn missing_credentials_key(&self) -> Option<(&'static str, String)> {
        let credentials = &self.site.credentials;
        let observed = self.observation.credentials.as_ref()?;
        let key = credentials.keys().find(|key| !observed.has(key))?;
        Some(incomplete(&credentials.secret, key))
    }
}

fn not_found(names: &str) -> (&'static str, String) {
    ("SecretNotFound", format!("Secret not found: {names}"))
}

fn incomplete(secret: &str, key: &str) -> (&'static str, String) {
    let message = format!("Secret {secret} lacks the key {key}");
    ("SecretIncomplete", message)
}
