//! The children: configuration, Job or CronJob, and claims for state and local archives.
//!
//! The plugin states a Job as a whole until it observes it, so the host reports a foreign Job with the same name. From
//! then on it holds the Job: the host neither changes nor re-creates it.

use std::collections::BTreeMap;

use innkeeper_kit::prelude::*;
use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::{CronJob, CronJobSpec, Job, JobSpec, JobTemplateSpec},
        core::v1::{PersistentVolumeClaim, Secret},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde_json::json;

use crate::{
    Kinds,
    api::{BACKOFF_LIMIT, LOCAL_SIZE, Parent, STATE_SIZE, restore::deadline},
    names::{default_local_claim, labels},
    plan::{CONFIG_FILE, Plan},
    pod,
    runs::{History, requested},
    task,
};

/// The annotation on each Job that the plugin itself creates: the configuration's hash.
pub(crate) const CONFIG_HASH: &str = "gobackup.io/config-hash";

/// Returns every child.
pub(crate) fn children(plan: &Plan<'_>, history: &History) -> Vec<Child> {
    let claims: Vec<Child> = claims(plan).map(|claim| claim.child(plan)).collect();
    // Their names may have another owner, and a run would then use a foreign configuration or claim.
    let mut needed = vec!["config"];
    needed.extend(claims.iter().map(|claim| claim.key.as_str()));
    let schedule = cron_job(plan)
        .map(|cron_job| Kinds::child("schedule", &cron_job).after(needed.iter().copied()));
    let jobs = first_run(plan, history)
        .map(|name| ("run".to_owned(), name))
        .into_iter()
        .chain(requested::jobs(plan, history))
        .map(|(key, name)| {
            let annotations = [(CONFIG_HASH, plan.config_hash())];
            let needed = needed.iter().copied();
            task::child(plan, &key, &name, annotations, job_spec(plan), needed)
        });
    std::iter::once(Kinds::child("config", &secret(plan)))
        .chain(schedule)
        .chain(jobs)
        .chain(claims.iter().cloned())
        .collect()
}

/// Returns the suspended CronJob for a suspended parent; none if it is suspended already, and for other children.
///
/// A refused parent has no plan, so the observed spec is stated again.
pub(crate) fn suspended(
    request: &Request,
    parent: &Parent,
    observed: &Observed,
    child: &Child,
) -> Option<Child> {
    if !parent.is_suspended() || !observed.is::<CronJob>() {
        return None;
    }
    let mut spec = observed.object().get("spec")?.clone();
    if spec["suspend"] == true {
        return None;
    }
    spec["suspend"] = json!(true);
    let metadata = metadata(child.name(), &labels(request, parent.kind, "schedule"));
    let object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec,
    });
    Some(Child::untyped(&child.key, &object))
}

/// The Secret with the configuration.
pub(crate) fn secret(plan: &Plan<'_>) -> Secret {
    let config = plan.rendered.text.clone().into_bytes();
    let mut data = BTreeMap::from([(CONFIG_FILE.to_owned(), ByteString(config))]);
    data.extend(plan.clear_credentials());
    let metadata = metadata(plan.secret_name(), &plan.labels("config"));
    Secret {
        metadata: config_hash(plan).mark(metadata),
        data: Some(data),
        ..Default::default()
    }
}

/// The Secret's mark. It reveals no credential, because the configuration contains none.
pub(crate) fn config_hash(plan: &Plan<'_>) -> TemplateHash {
    TemplateHash::new(&plan.rendered.text)
}

/// Returns the Job name of a `Backup` that runs once.
fn first_run(plan: &Plan<'_>, history: &History) -> Option<String> {
    let name = plan.request.name();
    // The host would prune an observed Job that is no longer a child.
    let is_observed = plan.request.children.find::<Job>(name).is_some();
    let is_due = plan.schedule.is_none() && !plan.parent.is_suspended() && !history.has_runs();
    (is_observed || is_due).then(|| name.to_owned())
}

/// Returns the spec for Jobs, including those that the CronJob creates.
pub(crate) fn job_spec(plan: &Plan<'_>) -> JobSpec {
    let spec = &plan.parent.spec;
    JobSpec {
        active_deadline_seconds: Some(spec.active_deadline_seconds.unwrap_or_else(deadline)),
        backoff_limit: Some(match spec.backoff_limit {
            // A try that fails after an upload is an archive more, for which keep would delete an older one.
            _ if plan.rendered.has_keep => 0,
            limit => limit.unwrap_or(BACKOFF_LIMIT),
        }),
        ttl_seconds_after_finished: spec.ttl_seconds_after_finished,
        template: pod::template(plan),
        ..Default::default()
    }
}

fn cron_job(plan: &Plan<'_>) -> Option<CronJob> {
    let spec = cron_job_spec(plan)?;
    let metadata = metadata(plan.request.name(), &plan.labels("schedule"));
    Some(CronJob {
        metadata: TemplateHash::new(&spec).mark(metadata),
        spec: Some(spec),
        ..Default::default()
    })
}

/// Returns the CronJob spec; none without a schedule.
pub(crate) fn cron_job_spec(plan: &Plan<'_>) -> Option<CronJobSpec> {
    let effective = plan.schedule.as_ref()?;
    let schedule = plan.parent.schedule.as_ref()?;
    Some(CronJobSpec {
        schedule: effective.expression.clone(),
        time_zone: Some(schedule.time_zone.clone()),
        suspend: Some(plan.parent.is_suspended()),
        concurrency_policy: Some(schedule.concurrency_policy.as_str().to_owned()),
        starting_deadline_seconds: schedule.starting_deadline_seconds,
        successful_jobs_history_limit: Some(schedule.successful_jobs_history_limit),
        failed_jobs_history_limit: Some(schedule.failed_jobs_history_limit),
        job_template: JobTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(plan.labels("run")),
                ..Default::default()
            }),
            spec: Some(job_spec(plan)),
        },
    })
}

/// A claim that the plugin creates. It stays when the parent is deleted.
struct Claim {
    key: &'static str,
    /// The parent's field.
    field: &'static str,
    name: String,
    declared: DeclaredClaim,
    observed: Option<ObservedClaim>,
}

impl Claim {
    fn new(
        plan: &Plan<'_>,
        (key, field): (&'static str, &'static str),
        name: String,
        size: Quantity,
        class: Option<String>,
    ) -> Self {
        let observed = plan.request.children.find::<PersistentVolumeClaim>(&name);
        Self {
            key,
            field,
            observed: observed.and_then(|observed| ObservedClaim::new(observed).ok()),
            name,
            declared: DeclaredClaim {
                size,
                storage_class_name: class,
                access_modes: vec!["ReadWriteOnce".to_owned()],
            },
        }
    }

    fn child(&self, plan: &Plan<'_>) -> Child {
        // The API server rejects a smaller size and another class, so a large enough claim is held, and the observed
        // class is repeated.
        let declared = self.declared.clone();
        let declared = match &self.observed {
            None => declared,
            Some(observed) => DeclaredClaim {
                storage_class_name: observed.storage_class_name().map(str::to_owned),
                ..declared
            },
        };
        let claim = declared.object(metadata(&self.name, &plan.labels(self.key)), None);
        let child = Kinds::child(self.key, &claim).retain();
        if self.is_enough() {
            child.hold()
        } else {
            child
        }
    }

    /// Returns true if the claim is as large as the parent requests.
    fn is_enough(&self) -> bool {
        self.observed
            .as_ref()
            .and_then(ObservedClaim::request)
            .is_some_and(|requested| {
                Amount::from_quantity(requested) >= Amount::from_quantity(&self.declared.size)
            })
    }
}

fn claims(plan: &Plan<'_>) -> impl Iterator<Item = Claim> {
    let spec = &plan.parent.spec;
    let name = plan.default_state_claim();
    let state = (plan.state_claim().as_ref() == Some(&name)).then(|| {
        let state = spec.state.clone().unwrap_or_default();
        let size = state
            .size
            .unwrap_or_else(|| Quantity(STATE_SIZE.to_owned()));
        Claim::new(
            plan,
            ("state", "state"),
            name,
            size,
            state.storage_class_name,
        )
    });
    let name = default_local_claim(plan.request.name());
    let local = (plan.local_claim().as_ref() == Some(&name)).then(|| {
        let volume = spec.local_volume.clone().unwrap_or_default();
        let size = volume
            .size
            .unwrap_or_else(|| Quantity(LOCAL_SIZE.to_owned()));
        Claim::new(
            plan,
            ("local", "localVolume"),
            name,
            size,
            volume.storage_class_name,
        )
    });
    state.into_iter().chain(local)
}

/// Returns the claims that the plugin creates for the parent.
pub(crate) fn claim_names(plan: &Plan<'_>) -> impl Iterator<Item = String> {
    claims(plan).map(|claim| claim.name)
}

/// Returns an existing claim that is smaller than the parent requests.
pub(crate) fn small_claim(plan: &Plan<'_>) -> Option<String> {
    claims(plan)
        .filter(|claim| claim.observed.is_some())
        .find(|claim| !claim.is_enough())
        .map(|claim| claim.name)
}

/// Returns differences between the parent and the existing claims that Kubernetes does not let the plugin fix.
pub(crate) fn claim_problems(plan: &Plan<'_>) -> Vec<String> {
    let problem = |claim: Claim| {
        claim
            .declared
            .check(claim.field, &claim.name, claim.observed.as_ref())
            .err()
    };
    claims(plan).filter_map(problem).collect()
}
