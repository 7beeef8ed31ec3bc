//! The object that the host applies for a child, and the keyed hash that shows if it was applied before.

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::{
    ANNOTATION_APPLIED, ANNOTATION_DEPTH, ANNOTATION_GENERATED, ANNOTATION_KEY,
    ANNOTATION_RETAINED_FOR, Child, Generated, Gvk, HashKey, LABEL_PLUGIN, Object, RemovalPolicy,
};
use serde_json::{Map, Value, json};

use super::{
    Context, absence, fields, generate,
    lost::OWN_PREFIX,
    ownership,
    text::{drop_nulls, drop_unset_times},
};

/// Prefixes the applied annotation, so that a later version can compute the value in another way.
const APPLIED_VERSION: &str = "v1:";

/// The object to apply for a child, including the host's metadata.
pub(super) struct Body {
    /// The object without the applied annotation, which is computed from it.
    canonical: Map<String, Value>,
    applied: String,
}

impl Body {
    /// Makes the object for a child; `present` is the child as it is observed.
    pub(super) fn new(context: &Context<'_>, child: &Child, present: Option<&Object>) -> Self {
        let canonical = canonical(context, child, present);
        let applied = applied(context.hash_key, &canonical, &child.generate);
        Self { canonical, applied }
    }

    /// Returns true if this object was applied last and other field managers have changed or taken no field since.
    pub(super) fn is_unchanged(&self, object: &Object, manager: &str, child: &Child) -> bool {
        // Managed fields keep paths for labels and annotations that admission has removed.
        if !self.was_applied_last(object) || !self.has_own_metadata(object) {
            return false;
        }
        let with_generated;
        let stated = if child.generate.is_empty() {
            &self.canonical
        } else {
            with_generated = self.with_generated_keys(child);
            &with_generated
        };
        is_covered(object, manager, stated)
    }

    /// Returns true if the observed object has all the host's labels and annotations.
    fn has_own_metadata(&self, object: &Object) -> bool {
        let metadata = self.canonical.get("metadata");
        [
            ("labels", &object.labels),
            ("annotations", &object.annotations),
        ]
        .into_iter()
        .all(|(field, observed)| {
            metadata
                .and_then(|metadata| metadata.get(field)?.as_object())
                .into_iter()
                .flatten()
                .filter(|(key, _)| key.starts_with(OWN_PREFIX))
                .all(|(key, value)| observed.get(&**key).map(|text| &**text) == value.as_str())
        })
    }

    /// Returns true if the observed annotation shows that this object was applied last.
    pub(super) fn was_applied_last(&self, object: &Object) -> bool {
        object.annotation(ANNOTATION_APPLIED) == Some(&self.applied)
    }

    /// Returns true unless the annotation shows that another object was applied last. Another client may have taken it away.
    pub(super) fn may_be_applied_last(&self, object: &Object) -> bool {
        let applied = object.annotation(ANNOTATION_APPLIED);
        applied.is_none_or(|applied| applied == self.applied)
    }

    /// Returns the whole object to apply.
    pub(super) fn into_object(self) -> Map<String, Value> {
        let mut object = self.canonical;
        put(
            &mut object,
            &["metadata", "annotations"],
            ANNOTATION_APPLIED,
            self.applied.into(),
        );
        object
    }

    /// Adds the keys for generated values.
    fn with_generated_keys(&self, child: &Child) -> Map<String, Value> {
        let mut object = self.canonical.clone();
        for entry in &child.generate {
            // Only the keys matter for ownership, and no generated value is ever in a plan.
            put(&mut object, &["data"], &entry.key, "".into());
        }
        object
    }
}

/// Returns true if a field manager owns every field in `stated`.
pub(super) fn is_covered(object: &Object, manager: &str, stated: &Map<String, Value>) -> bool {
    let absences = absence::absences(stated);
    let with_values;
    let (stated, refilled) = if absences.is_empty() {
        (stated, Vec::new())
    } else {
        with_values = absence::without_absences(stated, &Value::Null, &[]);
        let observed = serde_json::from_str(&object.json).unwrap_or_default();
        // A field that is stated as absent needs an owner only if the API server has filled it in again.
        (&with_values, absence::present(&observed, &absences))
    };
    object
        .managed
        .iter()
        .filter(|entry| fields::is_applied_by(entry, manager, None))
        .filter_map(|entry| fields::Owned::parse(&entry.fields))
        .any(|owned| {
            let has_all = |paths: &[absence::Path]| paths.iter().all(|path| owned.has(path));
            fields::covers(&owned, stated) && has_all(&refilled)
        })
}

/// Returns a child's complete object, without the host's metadata.
///
/// `apiVersion`, `kind`, name and namespace come from the child, and a Secret's `stringData` becomes `data`.
pub fn stated(child: &Child) -> Map<String, Value> {
    let mut object = child.object.clone();
    drop_unset_times(&mut object);
    // Elsewhere a null states an absence. An apply to the object itself cannot set the status, so here it states nothing.
    if let Some(status) = object.get_mut("status") {
        drop_nulls(status);
    }
    if child.kind.group.is_empty() && &*child.kind.kind == "Secret" {
        // Our managed fields for `stringData` do not follow changes in `data`, so the ownership check needs `data`.
        encode_string_data(&mut object);
    }
    object.insert("apiVersion".to_owned(), child.kind.api_version().into());
    object.insert("kind".to_owned(), (*child.kind.kind).into());
    let name = child.name.as_str().into();
    put(&mut object, &["metadata"], "name", name);
    if let Some(namespace) = &child.namespace {
        // The policy check has filled it in if the guest left it out.
        let namespace = namespace.as_str().into();
        put(&mut object, &["metadata"], "namespace", namespace);
    }
    object
}

/// Returns the time after which the cluster deletes a finished Job, `spec.ttlSecondsAfterFinished`; the host would create
/// it again.
pub fn time_to_live<'a>(kind: &Gvk, object: &'a Map<String, Value>) -> Option<&'a Value> {
    let is_job = (&*kind.group, &*kind.kind) == ("batch", "Job");
    object
        .get("spec")
        .filter(|_| is_job)?
        .get("ttlSecondsAfterFinished")
        .filter(|ttl| !ttl.is_null())
}

/// Returns the object to apply, without the applied annotation.
fn canonical(context: &Context<'_>, child: &Child, present: Option<&Object>) -> Map<String, Value> {
    let mut object = stated(child);
    // Child watches select on this label: a child without it is not observed.
    let plugin = context.plugin.as_str().into();
    put(&mut object, &["metadata", "labels"], LABEL_PLUGIN, plugin);
    let mut annotate = |name, value: &str| {
        let annotations = ["metadata", "annotations"];
        put(&mut object, &annotations, name, value.into());
    };
    // The guest gets the key back with the observed child.
    annotate(ANNOTATION_KEY, &child.key);
    if let Some(tokens) = generate::tokens(&child.generate) {
        annotate(ANNOTATION_GENERATED, &tokens);
    }
    let kind = child.kind.group_kind();
    // A depth stays while the plugin that serves the kind is not there, so that a restart does not write it anew.
    let has_depth = || present.is_some_and(|object| object.annotation(ANNOTATION_DEPTH).is_some());
    if context.manifest.reconciles(&kind) || context.resources.has_parents(&kind) || has_depth() {
        let depth = context.parent.depth().saturating_add(1);
        annotate(ANNOTATION_DEPTH, &depth.to_string());
    }
    match child.removal {
        RemovalPolicy::Retain => {
            // No owner reference: with one, the garbage collector would delete the child together with the parent.
            let mark = context.mark(&child.id());
            annotate(ANNOTATION_RETAINED_FOR, &mark);
        }
        RemovalPolicy::Delete => {
            let owners = json!([ownership::owner_reference(context.parent)]);
            put(&mut object, &["metadata"], "ownerReferences", owners);
        }
    }
    object
}

/// Converts `stringData` into `data`, because managed fields for `stringData` do not show changes in `data`.
///
/// An object with a value that is not a string stays unchanged, so that the API server rejects it.
pub fn encode_string_data(object: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = object.get("stringData") else {
        return;
    };
    if !texts.values().all(Value::is_string) {
        return;
    }
    let Some(Value::Object(texts)) = object.remove("stringData") else {
        return;
    };
    for (key, value) in texts {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        put(object, &["data"], &key, encoded.into());
    }
}

/// Sets a field below a path, and creates missing objects on the path.
pub fn put(object: &mut Map<String, Value>, path: &[&str], key: &str, value: Value) {
    let mut object = object;
    for step in path {
        let field = object
            .entry((*step).to_owned())
            .or_insert_with(|| json!({}));
        if !field.is_object() {
            *field = json!({});
        }
        let Value::Object(fields) = field else { return };
        object = fields;
    }
    object.insert(key.to_owned(), value);
}

/// Computes the applied annotation.
pub(super) fn applied(
    key: &HashKey,
    object: &Map<String, Value>,
    generate: &[Generated],
) -> String {
    // serde_json's maps are sorted, so the hash does not depend on the answer's order.
    let mut text =
        serde_json::to_string(object).expect("an object of JSON values should have a text");
    let mut entries: Vec<&Generated> = generate.iter().collect();
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    for entry in entries {
        text.push('\n');
        // Without the value, about which the annotation must reveal nothing, and without the token, which is in the
        // object's annotation already.
        text += &json!([entry.key, entry.length, entry.alphabet]).to_string();
    }
    // Keyed, because the object may be a Secret: whoever reads a plain hash can test guesses against it.
    format!("{APPLIED_VERSION}{}", key.hash("applied", &[&text]))
}
