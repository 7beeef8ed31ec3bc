//! Apply: writes a plan's operations in order, as far as the parent may write now.

use std::collections::BTreeMap;

use innkeeper_apply::{self as apply, Execution, Session};
use innkeeper_cluster as cluster;
use innkeeper_model::{
    ANNOTATION_GENERATED, Generated, Gvk, Object, ObjectId, Operation, error_chain,
};
use innkeeper_plan::{self as plan, Plan, absence};
use serde_json::{Map, Value};
use tracing::{debug, info, warn};

use super::{
    contested::set_aside,
    context::{Context, Pass},
    plan::Planned,
    throttle::throttle,
    writes::{record_failure, record_operation},
};
use crate::{
    inventory::{RecordError, Role},
    limits::throttled::Throttled,
};

/// A failure before the first operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A restarted host finds children only by the inventory, so none is created without it.
    #[error("failed to record the child kinds in the inventory before the first create")]
    Inventory(#[source] RecordError),
    /// An object that the cache did not show exists, and cannot be read.
    #[error("failed to read {id} from the API server")]
    Read {
        id: ObjectId,
        #[source]
        source: cluster::Error,
    },
}

/// A plan with the results of its operations.
pub(crate) struct Applied<'a> {
    pub(super) planned: Planned<'a>,
    pub(super) result: Result<Execution, Error>,
    /// The operations that the parent may not write yet.
    pub(super) throttled: Option<Throttled>,
}

/// Writes the operations, except contested ones whose wait is not over and those over a limit.
pub(super) async fn apply<'a>(pass: &Pass<'_>, mut planned: Planned<'a>) -> Applied<'a> {
    if !planned.plan.is_settled() {
        let plan = planned.plan.to_string().trim_end().replace('\n', "; ");
        info!(plan, "applying");
    }
    // `planned` keeps the whole plan: a child whose operation has to wait is not ready.
    let mut plan = planned.plan.clone();
    // Before the limits, which would charge for writes that have to wait anyway.
    set_aside(pass, &planned, &mut plan).await;
    let throttled = throttle(pass, &planned, &mut plan);
    let result = execute(pass, &mut planned, &plan).await;
    Applied {
        planned,
        result,
        throttled,
    }
}

async fn execute(
    pass: &Pass<'_>,
    planned: &mut Planned<'_>,
    plan: &Plan,
) -> Result<Execution, Error> {
    let context = pass.context;
    let shared = &context.shared;
    let writer = shared.writer_for(pass.id);
    shared
        .inventory
        .record(writer, &context.plugin, Role::Child, &plan.kinds)
        .await
        .map_err(Error::Inventory)?;
    let secrets = live_secrets(context, plan).await?;
    let live = live_with_absences(context, plan).await?;
    let random = shared.random;
    let mut random = move |buffer: &mut [u8]| random(buffer);
    // The current account: grants apply at once, and the Plugin may have lost the one that the pass began under.
    let account = context.slot.current().revision.account.clone();
    let mut session = Session {
        plugin: &context.plugin,
        manager: &planned.entered.manager,
        account: account.as_deref(),
        resources: &shared.cluster,
        secrets: &secrets,
        live: &live,
        random: &mut random,
    };
    let target = &mut planned.target;
    let execution = writer.execute(plan, target, &mut session).await;
    let version = planned.target.resource_version();
    for (operation, result) in &execution.results {
        match result {
            Ok(written) => {
                let version = written.as_ref().map(|written| written.resource_version);
                debug!(%operation, ?version, "done");
                record_operation(context, planned.parent, operation, written.as_ref());
            }
            Err(error) => {
                let observed = match operation.child() {
                    Some(_) => operation.child_version(),
                    None => Some(version),
                };
                let id = operation.child().unwrap_or(pass.id);
                record_failure(context, pass.id, id, observed, error);
                report_failure(pass, planned.parent, operation, error);
            }
        }
    }
    Ok(execution)
}

fn report_failure(pass: &Pass<'_>, parent: &Object, operation: &Operation, error: &apply::Error) {
    if error.blocks_deletion_of(parent) {
        // A cluster-scoped parent may have children in several namespaces.
        if pass.id.namespace.is_some() {
            pass.context
                .ledger
                .lock()
                .set_namespace_terminating(pass.id);
        }
        let error = error.failure().message;
        warn!(%operation, error, "the parent cannot be finalized");
    } else if error.is_conflict_only() || error.kind == apply::ErrorKind::Exists {
        // The next plan reads an object that exists, and reports one with another owner.
        let category = error.category();
        debug!(%operation, category, "not confirmed, the next pass observes it");
    } else {
        warn!(%operation, error = %error_chain(error), "failed");
    }
}

/// Reads the values in generated Secrets that the plan writes, except those whose token has changed.
async fn live_secrets(
    context: &Context,
    plan: &Plan,
) -> Result<BTreeMap<ObjectId, Map<String, Value>>, Error> {
    let mut secrets = BTreeMap::new();
    for operation in &plan.operations {
        let Operation::Update {
            id,
            kind,
            generate,
            restores,
            ..
        } = operation
        else {
            continue;
        };
        if generate.is_empty() {
            continue;
        }
        // Without a grant for full access, the cache holds hashes of the values.
        let Some(live) = read_live(context, kind, id).await? else {
            continue;
        };
        let data = serde_json::from_str::<Map<String, Value>>(&live.json)
            .ok()
            .and_then(|mut live| live.remove("data"));
        if let Some(Value::Object(mut data)) = data {
            // A restoration has the last apply's tokens, also if another field manager has removed the annotation.
            let annotation = live.annotation(ANNOTATION_GENERATED);
            let drawn_again = |entry: &&Generated| !restores && plan::is_rotated(entry, annotation);
            for entry in generate.iter().filter(drawn_again) {
                data.remove(&entry.key);
            }
            secrets.insert(id.clone(), data);
        }
    }
    Ok(secrets)
}

/// Reads the children from which an update removes fields, because the cache lacks other clients' managed fields.
async fn live_with_absences(
    context: &Context,
    plan: &Plan,
) -> Result<BTreeMap<ObjectId, Object>, Error> {
    let mut children = BTreeMap::new();
    for operation in &plan.operations {
        let Operation::Update { id, kind, body, .. } = operation else {
            continue;
        };
        if !absence::absences(body).is_empty()
            && let Some(child) = read_live(context, kind, id).await?
        {
            children.insert(id.clone(), child);
        }
    }
    Ok(children)
}

/// Reads an object from the API server.
pub(super) async fn read_live(
    context: &Context,
    kind: &Gvk,
    id: &ObjectId,
) -> Result<Option<Object>, Error> {
    context
        .shared
        .cluster
        .live_get(kind, id.namespace.as_deref(), &id.name)
        .await
        .map_err(|source| Error::Read {
            id: id.clone(),
            source,
        })
}
