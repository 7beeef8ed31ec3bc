//! Writes a plan's operations in order.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::{
    Generated, Gvk, Object, ObjectId, Operation, PluginName, Resource, Resources,
};
use innkeeper_plan::{self as plan, Effects, Plan, StatusWrite, absence};
use serde_json::{Map, Value, json};

use super::{
    Error, ErrorKind, Target, Writer, Written,
    absence::Absences,
    request::{Address, WriteRequest},
};

/// The common inputs for one pass's writes.
pub struct Session<'a> {
    /// The plugin.
    pub plugin: &'a PluginName,
    /// The children's field manager.
    pub manager: &'a str,
    /// The user that children are written as; none: the host itself. The host writes finalizers and statuses as
    /// itself.
    pub account: Option<&'a str>,
    /// The kinds that the cluster serves.
    pub resources: &'a dyn Resources,
    /// The live `data`, just read, for Secrets whose generated values are stated again.
    pub secrets: &'a BTreeMap<ObjectId, Map<String, Value>>,
    /// The children that an update takes fields away from, just read, with everyone's managed fields.
    pub live: &'a BTreeMap<ObjectId, Object>,
    /// Fills a buffer with random bytes, fit for passwords.
    pub random: &'a mut (dyn FnMut(&mut [u8]) + Send),
}

/// The results of a plan's operations.
#[derive(Debug, Default)]
pub struct Execution {
    /// Those that were tried, in order; a success without an object is a deletion.
    pub results: Vec<(Operation, Result<Option<Written>, Error>)>,
}

impl Execution {
    /// Returns the input for `plan::conclude`.
    pub fn effects(&self) -> Effects {
        let mut effects = Effects::default();
        for (operation, result) in &self.results {
            if let Some(id) = operation.child() {
                let effect = match result {
                    Ok(written) => Ok(written.as_ref().map(|written| written.json.clone())),
                    Err(error) => Err(error.failure()),
                };
                effects.children.insert(id.clone(), effect);
            } else if let Err(error) = result {
                effects.parent = Some(error.finalizer_failure());
            }
        }
        effects
    }

    /// The children whose create failed because an object exists; the owner has to be read before the next plan.
    pub fn conflicts(&self) -> impl Iterator<Item = &ObjectId> {
        self.results
            .iter()
            .filter_map(|(operation, result)| match result {
                Err(error) if error.kind == ErrorKind::Exists => operation.child(),
                _ => None,
            })
    }

    /// Returns true if a child was created, changed or transferred, so that the guest has to see it.
    pub fn changed_children(&self) -> bool {
        self.results.iter().any(|result| match result {
            (Operation::Create { .. } | Operation::Transfer { .. }, Ok(Some(_))) => true,
            // The API server answers an update that changes nothing with the observed version.
            (update @ Operation::Update { .. }, Ok(Some(written))) => {
                update.child_version() != Some(written.resource_version)
            }
            _ => false,
        })
    }

    /// Returns true if operations failed, and all because the cluster has changed: there is nothing to report, the
    /// next pass sees it.
    pub fn is_conflict_only(&self) -> bool {
        self.errors().next().is_some() && self.errors().all(Error::is_conflict_only)
    }

    /// Returns the failures in operation order.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.results
            .iter()
            .filter_map(|(_, result)| result.as_ref().err())
    }
}

impl Writer {
    /// Writes a plan's operations in order.
    ///
    /// Without the finalizer nothing else is written.
    /// A child that fails does not stop the others, but after any failure nothing is pruned and the parent is not
    /// released.
    pub async fn execute(
        &self,
        plan: &Plan,
        target: &mut Target,
        session: &mut Session<'_>,
    ) -> Execution {
        let mut execution = Execution::default();
        let mut failed = false;
        for operation in &plan.operations {
            let last = matches!(
                operation,
                Operation::Prune { .. } | Operation::RemoveFinalizer
            );
            // A prune after a failed apply could delete an object before the replacement exists.
            if last && failed {
                break;
            }
            let result = self.write(operation, target, session).await;
            failed |= result.is_err();
            // Children without the finalizer on their parent would not be finalized.
            let stop = result.is_err() && *operation == Operation::AddFinalizer;
            execution.results.push((operation.clone(), result));
            if stop {
                break;
            }
        }
        execution
    }

    /// Writes one operation; none is returned for a deletion.
    pub async fn write(
        &self,
        operation: &Operation,
        target: &mut Target,
        session: &mut Session<'_>,
    ) -> Result<Option<Written>, Error> {
        let served;
        let request = match operation {
            Operation::AddFinalizer => {
                return self.add_finalizer(target, session.plugin).await.map(Some);
            }
            Operation::RemoveFinalizer => return self.release(target, session.plugin).await,
            Operation::Create {
                id,
                kind,
                body,
                generate,
                ..
            } => {
                served = resource(session, operation, kind)?;
                let body = with_generated(body, generate, None, session);
                // What does not exist has no fields, and some kinds refuse a null.
                let body = absence::without_absences(&body, &Value::Null, &[]);
                address(&served, id).create(session.manager, &body)
            }
            Operation::Update {
                id,
                kind,
                uid,
                resource_version,
                body,
                generate,
                ..
            } => {
                served = resource(session, operation, kind)?;
                let data = session.secrets.get(id);
                let body = with_generated(body, generate, data, session);
                let address = address(&served, id);
                let version = *resource_version;
                if let Some(live) = session.live.get(id) {
                    let update = Absences::new(address, session, &body, (uid, version), live);
                    return self.update_with_absences(&update).await.map(Some);
                }
                address.update(session.manager, &body, uid, version)
            }
            Operation::Transfer {
                id, kind, patch, ..
            } => {
                served = resource(session, operation, kind)?;
                address(&served, id).json_patch(operation.verb(), session.manager, patch)
            }
            Operation::Prune {
                id,
                kind,
                uid,
                resource_version,
            } => {
                served = resource(session, operation, kind)?;
                let request = address(&served, id).delete(uid, *resource_version);
                return self.prune(request.act_as(session.account)).await;
            }
        };
        let request = request.act_as(session.account);
        let what = request.what.clone();
        let written = self.exchange(request).await?;
        // Admission may remove the label on which the watch selects: no later pass would see the child.
        match plan::lost_metadata(operation, &written.json) {
            Some(lost) => Err(ErrorKind::MetadataLost.because(what, lost)),
            None => Ok(Some(written)),
        }
    }

    async fn prune(&self, request: WriteRequest<'_>) -> Result<Option<Written>, Error> {
        match self.send(request).await {
            Ok(_) => Ok(None),
            // The object is gone, as the plan wants it.
            Err(error) if error.kind == ErrorKind::Gone => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the plugin's finalizer from the parent; returns none for a parent that is gone or does not have it.
    pub async fn release(
        &self,
        target: &mut Target,
        plugin: &PluginName,
    ) -> Result<Option<Written>, Error> {
        let finalizer = plugin.finalizer();
        let Some(index) = target.finalizer(&finalizer) else {
            return Ok(None);
        };
        let place = format!("/metadata/finalizers/{index}");
        let uid = &*target.uid().0;
        let version = target.resource_version().to_string();
        let patch = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}),
            // Another client may have changed the list: the index alone could remove someone else's finalizer.
            json!({"op": "test", "path": place, "value": finalizer}),
            json!({"op": "remove", "path": place}),
        ];
        // No apply: it would leave a finalizer that a restore or `kubectl create` owns as well.
        let verb = "take the finalizer off";
        let request =
            target
                .address()
                .json_patch(verb, &plugin.host_manager(), &Value::Array(patch));
        match self.exchange(request).await {
            Ok(written) => {
                target.advance(&written);
                Ok(Some(written))
            }
            Err(error) if error.kind == ErrorKind::Gone => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies a parent status.
    pub async fn status(&self, target: &mut Target, write: &StatusWrite) -> Result<Written, Error> {
        let mut body = target.address().body();
        body.insert("status".to_owned(), Value::Object(write.status.clone()));
        let version = target.resource_version();
        let request = target
            .address()
            .status(&write.manager, &body, target.uid(), version);
        let written = self.exchange(request).await?;
        target.advance(&written);
        Ok(written)
    }

    /// Adds the plugin's finalizer to the parent.
    pub async fn add_finalizer(
        &self,
        target: &mut Target,
        plugin: &PluginName,
    ) -> Result<Written, Error> {
        let mut body = target.address().body();
        if let Some(metadata) = body.get_mut("metadata") {
            metadata["finalizers"] = json!([plugin.finalizer()]);
        }
        let version = target.resource_version();
        let request = target
            .address()
            .update(&plugin.host_manager(), &body, target.uid(), version);
        let what = request.what.clone();
        let written = self.exchange(request).await?;
        target.advance(&written);
        let finalizer = plugin.finalizer();
        // Admission may remove it without an error. Then nothing would hold the parent until the guest has cleaned up.
        if !target.has_finalizer(&finalizer) {
            let lost = format!("the finalizer {finalizer}");
            return Err(ErrorKind::MetadataLost.because(what, lost));
        }
        Ok(written)
    }

    /// Sends a write that is answered with the object.
    pub(super) async fn exchange(&self, request: WriteRequest<'_>) -> Result<Written, Error> {
        let what = request.what.clone();
        let address = request.address;
        let body = self.send(request).await?;
        Written::parse(&what, address, &body)
    }
}

fn resource(session: &Session<'_>, operation: &Operation, kind: &Gvk) -> Result<Resource, Error> {
    session
        .resources
        .resource(kind)
        .ok_or_else(|| ErrorKind::NotServed.without_source(operation.to_string()))
}

fn address<'a>(resource: &'a Resource, id: &'a ObjectId) -> Address<'a> {
    Address::new(resource, id.namespace.as_deref(), &id.name)
}

/// Returns the body with generated values: existing ones where there are any, and new ones for the others.
fn with_generated<'a>(
    body: &'a Map<String, Value>,
    generate: &[Generated],
    known: Option<&Map<String, Value>>,
    session: &mut Session<'_>,
) -> Cow<'a, Map<String, Value>> {
    if generate.is_empty() {
        return Cow::Borrowed(body);
    }
    let mut body = body.clone();
    let data = body
        .entry("data")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(data) = data {
        for entry in generate {
            let value = match known.and_then(|known| known.get(&entry.key)) {
                // Stated again, because an apply removes what the manager owns and no longer states.
                Some(value) => value.clone(),
                None => STANDARD
                    .encode(plan::generate(entry, session.random))
                    .into(),
            };
            data.insert(entry.key.clone(), value);
        }
    }
    Cow::Owned(body)
}
