//! Observed objects: parent, children, and all others.

use std::sync::Arc;

use innkeeper_cluster as cluster;
use innkeeper_command::{Exit, Failure, OrFail as _};
use innkeeper_model::{
    ANNOTATION_KEY, ANNOTATION_RETAINED_FOR, Access, HashKey, Object, Scope, child_order,
};
use innkeeper_policy::Grants;
use innkeeper_sandbox::ObservedChild;
use serde_json::Value;

use super::parent::Parent;
use crate::document::Document;

/// All objects that a pass can see.
pub(super) struct ObservedObjects {
    pub(super) parent: Object,
    /// The children as the guest gets them, in the contract's order.
    pub(super) children: Vec<ObservedChild>,
    /// All objects in their given form, including the parent.
    pub(super) objects: Vec<Document>,
}

impl ObservedObjects {
    /// Finds the children and converts them to the form that the cache gives to guests.
    pub(super) fn new(
        parent: Parent,
        others: Vec<Document>,
        grants: &Grants,
        hash_key: &HashKey,
    ) -> Result<Self, Failure> {
        let mut owned: Vec<&Document> = others
            .iter()
            .filter(|other| belongs(other, &parent))
            .collect();
        owned.sort_by(|left, right| child_order(&left.id(), &right.id()));
        let parent_scope = match parent.document.namespace {
            Some(_) => Scope::Namespaced,
            None => Scope::Cluster,
        };
        let children = owned
            .into_iter()
            .map(|document| {
                let access = grants.child_access(&document.group_kind(), parent_scope);
                Ok(observed_child(&present(document, access, hash_key)?))
            })
            .collect::<Result<_, Failure>>()?;
        let shown = present(&parent.document, Access::Full, hash_key)?;
        let mut objects = others;
        objects.push(parent.document);
        Ok(Self {
            parent: shown,
            children,
            objects,
        })
    }
}

/// Converts an object to the form that the cache gives to guests.
pub(super) fn present(
    document: &Document,
    access: Access,
    hash_key: &HashKey,
) -> Result<Object, Failure> {
    cluster::present(&document.object, &document.kind, access, hash_key)
        .or_fail(Exit::Usage, format!("failed to convert {}", document.id()))
}

fn observed_child(object: &Object) -> ObservedChild {
    ObservedChild {
        key: object.annotation(ANNOTATION_KEY).map(Arc::from),
        // `belongs` has checked that it is retained for this parent.
        retained: object.controller.is_none(),
        object: Arc::clone(&object.json),
    }
}

/// Returns true for the parent's children.
fn belongs(document: &Document, parent: &Parent) -> bool {
    if let Some(owner) = controller(document) {
        return controls(owner, document, parent);
    }
    let retained_for = document
        .metadata_field("annotations")
        .and_then(|annotations| annotations.get(ANNOTATION_RETAINED_FOR));
    // Without a cluster there is no key, so the host's proof after the identity is not checked.
    let identity = retained_for.and_then(|text| text.as_str()?.split(' ').next());
    identity == Some(&parent.document.id().identity())
}

fn controller(document: &Document) -> Option<&Value> {
    document
        .metadata_field("ownerReferences")?
        .as_array()?
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))
}

fn controls(owner: &Value, document: &Document, parent: &Parent) -> bool {
    let Parent {
        document: parent,
        has_uid,
    } = parent;
    let text = |name: &str| owner.get(name).and_then(Value::as_str);
    if *has_uid {
        // An earlier parent may have had the same name.
        return text("uid") == parent.metadata("uid");
    }
    text("apiVersion")
        .and_then(|version| Some(version.split_once('/')?.0))
        .unwrap_or_default()
        == &*parent.kind.group
        && text("kind") == Some(&*parent.kind.kind)
        && text("name") == Some(&*parent.name)
        // An owner reference names no namespace: a namespaced owner is in the child's.
        && (parent.namespace.is_none() || document.namespace == parent.namespace)
}
