//! Child edits by a client that does not own the children.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};

use super::{
    acts::retry,
    driver::Run,
    plan::{Child, ForeignEdit, Parent, Sort},
};

/// The host's label on children.
const LABEL: &str = "innkeeper.dev/plugin";

/// A UID that no object has.
const UNKNOWN_UID: &str = "00000000-0000-4000-8000-000000000001";

/// Edits the first child of a parent as soon as it exists.
pub(super) fn edit_child(run: &Run<'_>, parent: Parent, edit: ForeignEdit) -> Result<()> {
    let child = parent.first_child();
    let merge = |patch: Value| {
        retry("edit a child", || {
            let kind = run.kind((child.api_version, child.kind));
            run.cluster
                .user()
                .merge(kind, &child.name, &patch)
                .map(drop)
        })
    };
    let metadata = |metadata: Value| merge(json!({ "metadata": metadata }));
    match edit {
        ForeignEdit::Remove => remove(run, &child),
        ForeignEdit::Edit => merge(owned_field(parent)),
        ForeignEdit::Seize => {
            let mut object = json!({
                "apiVersion": child.api_version, "kind": child.kind,
                "metadata": { "name": child.name, "namespace": run.namespace },
            });
            for (field, value) in owned_field(parent).as_object().into_iter().flatten() {
                object[field] = value.clone();
            }
            retry("take a field", || {
                run.cluster
                    .user()
                    .apply_as("another-manager", &object)
                    .map(drop)
            })
        }
        ForeignEdit::Hide => metadata(json!({ "labels": { LABEL: null } })),
        ForeignEdit::Relabel => metadata(json!({ "labels": { LABEL: "another-plugin" } })),
        ForeignEdit::Flip => {
            metadata(json!({ "labels": { LABEL: null } }))?;
            metadata(json!({ "labels": { LABEL: plugin(parent.sort) } }))
        }
        ForeignEdit::Forget => metadata(json!({ "managedFields": [{}] })),
        ForeignEdit::Disown => metadata(json!({ "ownerReferences": null })),
        ForeignEdit::Reown => {
            let object = find(run, &child)?.context("the child does not exist")?;
            let mut owners = object["metadata"]["ownerReferences"].clone();
            owners[0]["uid"] = json!(UNKNOWN_UID);
            metadata(json!({ "ownerReferences": owners }))
        }
        ForeignEdit::Blink => blink(run, parent, &child),
    }
}

const fn plugin(sort: Sort) -> &'static str {
    match sort {
        Sort::Cache => "memcached",
        Sort::Plain => "unruly",
        Sort::Farewell => "farewell",
    }
}

/// A patch with another value for a field that the host owns in the first child.
fn owned_field(parent: Parent) -> Value {
    match parent.sort {
        Sort::Cache => json!({ "spec": { "replicas": 5 } }),
        Sort::Plain => json!({ "data": { "name": "edited" } }),
        Sort::Farewell => json!({ "data": { "said": "edited" } }),
    }
}

fn find(run: &Run<'_>, child: &Child) -> Result<Option<Value>> {
    let kind = run.kind((child.api_version, child.kind));
    retry("read a child", || run.cluster.user().get(kind, &child.name))
}

fn remove(run: &Run<'_>, child: &Child) -> Result<()> {
    let kind = run.kind((child.api_version, child.kind));
    retry("delete a child", || {
        run.cluster.user().delete(kind, &child.name)
    })
}

fn blink(run: &Run<'_>, parent: Parent, child: &Child) -> Result<()> {
    remove(run, child)?;
    // The host may have been faster; then the name is taken.
    let Ok(object) = foreign(run, parent) else {
        return Ok(());
    };
    let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let kind = run.kind((child.api_version, child.kind));
    retry("delete an object", || {
        run.cluster.user().delete_with(kind, &child.name, &params)
    })
}

/// Creates an object without an owner under the name that a parent's first child gets.
pub(super) fn foreign(run: &Run<'_>, parent: Parent) -> Result<Value> {
    let child = parent.first_child();
    let mut object = match parent.sort {
        Sort::Cache => probe("deployments", &run.namespace),
        Sort::Plain | Sort::Farewell => json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": run.namespace }, "data": { "mine": "yes" },
        }),
    };
    object["metadata"]["name"] = json!(child.name);
    run.cluster.user().create(&object)
}

/// An object for a plural, which the API server accepts if nothing forbids it.
pub(super) fn probe(plural: &str, namespace: &str) -> Value {
    let labels = json!({ "app": "foreign" });
    let metadata = json!({ "name": "probe", "namespace": namespace });
    if plural == "deployments" {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 0,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
                },
            },
        })
    } else {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "ports": [{ "port": 80 }] },
        })
    }
}
