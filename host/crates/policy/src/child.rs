//! The rules for one child.

use std::collections::BTreeSet;

use innkeeper_model::{
    Access, Child, DOMAIN_PREFIX, Generated, GroupKind, Object, RemovalPolicy, Scope, json_length,
    syntax,
};
use serde_json::{Map, Value};

use super::{
    Grants, Rejection, Rules, depth, interference, pod_security::pod_violations, privilege::reach,
};

/// The most values that the host generates for one Secret, and the most characters for each: more than any known Secret
/// has, and together far below the object size limit.
const GENERATED_MAX: usize = 64;
const GENERATED_CHARS_MAX: u32 = 1024;
/// The most characters in a generated value's token, as in a Kubernetes name.
const GENERATED_TOKEN_CHARS_MAX: usize = 253;

/// The most Pod security violations in a message: more than one container usually has.
const VIOLATIONS_SHOWN_MAX: usize = 8;

/// Metadata fields that a guest must not set, each with the reason.
const REFUSED_METADATA: [(&str, &str); 11] = [
    ("creationTimestamp", "the API server sets it"),
    ("deletionGracePeriodSeconds", "the API server sets it"),
    ("deletionTimestamp", "the API server sets it"),
    (
        "finalizers",
        "a child with a finalizer could not be removed by the host",
    ),
    ("generateName", "a child is found by its name"),
    ("generation", "the API server sets it"),
    ("managedFields", "the API server sets it"),
    ("ownerReferences", "the host sets it, see `removal`"),
    ("resourceVersion", "the API server sets it"),
    ("selfLink", "the API server sets it"),
    ("uid", "the API server sets it"),
];

/// Checks a key; `index` is the child's place in the answer.
pub(super) fn check_key(key: &str, index: usize) -> Result<(), Rejection> {
    let length = key.chars().count();
    if (1..=syntax::SUBDOMAIN_CHARS_MAX).contains(&length) {
        return Ok(());
    }
    Err(Rejection::output(format!(
        "child number {index} has a key of {length} characters: give it 1 to {}",
        syntax::SUBDOMAIN_CHARS_MAX
    )))
}

/// Checks one child and fills in its namespace.
pub(super) fn check(child: Child, rules: &Rules<'_>) -> Result<Child, Rejection> {
    check_kind(&child, rules)?;
    check_name(&child)?;
    let child = place(child, rules)?;
    depth::check(&child, rules)?;
    check_size(&child, rules)?;
    check_metadata(&child.object)?;
    check_generate(&child)?;
    let kind = child.kind.group_kind();
    let place = (child.namespace.as_deref(), &*child.name);
    check_powers(&kind, place, &child.object, rules.grants)?;
    // The manifest promises this for the kind, whatever an answer says.
    let removal = if rules.manifest.never_deletes(&kind) {
        RemovalPolicy::Retain
    } else {
        child.removal
    };
    Ok(Child { removal, ..child })
}

/// Checks an object that the plugin would adopt as if an answer stated it: other field managers keep their fields, and
/// the plugin may change all others.
///
/// # Errors
///
/// Returns the first rule that the object breaks.
pub fn check_adoption(object: &Object, grants: &Grants) -> Result<(), Rejection> {
    // In any other form, values are hashes or missing, and a forbidden one would not be seen.
    let whole = Some(&object.json).filter(|_| object.form == Access::Full);
    let fields = whole
        .and_then(|json| serde_json::from_str(json).ok())
        .ok_or_else(|| Rejection::forbidden("its fields are not known"))?;
    let place = (object.namespace.as_deref(), &*object.name);
    check_powers(&object.kind.group_kind(), place, &fields, grants)
}

/// Checks that an object can do no more than the grants allow.
fn check_powers(
    kind: &GroupKind,
    place: (Option<&str>, &str),
    object: &Map<String, Value>,
    grants: &Grants,
) -> Result<(), Rejection> {
    check_confirmed(kind, place, object, grants)?;
    check_reach(kind, object, grants)?;
    check_pods(kind, object, grants)
}

/// Checks that the object's content affects nobody else, unless the grant confirms it.
fn check_confirmed(
    kind: &GroupKind,
    place: (Option<&str>, &str),
    object: &Map<String, Value>,
    grants: &Grants,
) -> Result<(), Rejection> {
    match interference::effect(kind, place, object) {
        Some(effect) if !grants.confirms(kind) => Err(interference::unconfirmed(&effect, kind)),
        _ => Ok(()),
    }
}

/// Checks that a plugin without grants takes nothing from outside the child's namespace.
fn check_reach(
    kind: &GroupKind,
    object: &Map<String, Value>,
    grants: &Grants,
) -> Result<(), Rejection> {
    if grants.beyond_parent_namespace {
        return Ok(());
    }
    match reach(kind, object) {
        Some(field) => Err(Rejection::forbidden(format!(
            "`{field}` reaches beyond the namespace or is for another controller: a plugin file needs --grants for that"
        ))),
        None => Ok(()),
    }
}

/// Checks a Pod or Pod template against the granted level.
fn check_pods(
    kind: &GroupKind,
    object: &Map<String, Value>,
    grants: &Grants,
) -> Result<(), Rejection> {
    let Grants {
        pod_security: level,
        service_accounts,
        ..
    } = grants;
    let violations = pod_violations(*level, service_accounts, kind, object);
    if violations.is_empty() {
        return Ok(());
    }
    let shown = &violations[..violations.len().min(VIOLATIONS_SHOWN_MAX)];
    let more = match violations.len() - shown.len() {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    Err(Rejection::forbidden(format!(
        "it breaks the level `podSecurity: {}` of the grants: {}{more}",
        level.as_str(),
        shown.join("; ")
    )))
}

fn check_kind(child: &Child, rules: &Rules<'_>) -> Result<(), Rejection> {
    let Child { kind, .. } = child;
    let mut declared = rules.manifest.children.iter();
    if !declared.any(|declared| declared.kind == *kind) {
        return Err(Rejection::forbidden(format!(
            "{kind} is not among the child kinds that the plugin declares in `describe`"
        )));
    }
    if !rules.grants.allows_child(&kind.group_kind()) {
        return Err(Rejection::forbidden(format!(
            "the plugin is not granted children of kind {kind}"
        )));
    }
    Ok(())
}

fn check_name(child: &Child) -> Result<(), Rejection> {
    // The API server takes any path segment here, as in `system:node`.
    if &*child.kind.group == "rbac.authorization.k8s.io" {
        if syntax::is_path_segment(&child.name) {
            return Ok(());
        }
        return Err(Rejection::output(format!(
            "\"{}\" is not a valid name: use at most {} printable characters other than / % ? #",
            child.name,
            syntax::SUBDOMAIN_CHARS_MAX
        )));
    }
    if syntax::is_dns_subdomain(&child.name) {
        return Ok(());
    }
    Err(Rejection::output(format!(
        "\"{}\" is not a valid name: use at most {} lower-case letters, digits, dashes and dots, starting and ending with a letter or digit",
        child.name,
        syntax::SUBDOMAIN_CHARS_MAX
    )))
}

/// Checks the child's namespace against the parent's, or sets it if it is missing.
fn place(mut child: Child, rules: &Rules<'_>) -> Result<Child, Rejection> {
    // An unserved kind has no known scope. Any value will do, because the plan skips such a child.
    let scope = rules
        .resources
        .resource(&child.kind)
        .map_or(Scope::Namespaced, |resource| resource.scope);
    let parent = rules.parent;
    if parent.namespace.is_none() && !rules.grants.beyond_parent_namespace {
        return Err(Rejection::forbidden(format!(
            "the parent {parent} is cluster-scoped, and a plugin without grants makes children in the namespace of their parent only: give it grants"
        )));
    }
    match (
        scope,
        parent.namespace.as_deref(),
        child.namespace.as_deref(),
    ) {
        (Scope::Cluster, Some(_), _) => {
            return Err(Rejection::forbidden(format!(
                "{} is cluster-scoped, and the namespaced parent {parent} cannot own it",
                child.kind
            )));
        }
        (Scope::Cluster, None, Some(namespace)) => {
            return Err(Rejection::output(format!(
                "{} is cluster-scoped: leave out the namespace \"{namespace}\"",
                child.kind
            )));
        }
        // The garbage collector would delete it: it looks for the owner in the child's namespace.
        (Scope::Namespaced, Some(own), Some(namespace)) if own != namespace => {
            return Err(Rejection::forbidden(format!(
                "it is in namespace \"{namespace}\": children of {parent} live in \"{own}\""
            )));
        }
        (Scope::Namespaced, None, None) => {
            return Err(Rejection::output(format!(
                "name its namespace: the parent {parent} is cluster-scoped and {} is not",
                child.kind
            )));
        }
        (Scope::Namespaced, None, Some(namespace)) if !syntax::is_dns_label(namespace) => {
            return Err(Rejection::output(format!(
                "\"{namespace}\" is not a valid namespace name"
            )));
        }
        (Scope::Namespaced, Some(own), None) => child.namespace = Some(own.to_owned()),
        (Scope::Cluster, None, None) | (Scope::Namespaced, _, Some(_)) => {}
    }
    if let Some(namespace) = &child.namespace
        && !rules
            .grants
            .allows_namespace(namespace, rules.host_namespaces)
    {
        return Err(Rejection::forbidden(format!(
            "\"{namespace}\" is a namespace of Kubernetes itself or of the host, and `systemNamespaces` of the grants does not name it"
        )));
    }
    let is_parent = child.kind.group_kind() == parent.kind
        && child.namespace.as_deref() == parent.namespace.as_deref()
        && child.name == *parent.name;
    if is_parent {
        return Err(Rejection::forbidden("it is the parent itself"));
    }
    Ok(child)
}

fn check_size(child: &Child, rules: &Rules<'_>) -> Result<(), Rejection> {
    let max = rules.limits.object_bytes_max;
    let size = json_length(&child.object)
        .map_err(|source| Rejection::output(format!("it cannot be written as JSON: {source}")))?;
    if size <= max {
        return Ok(());
    }
    Err(Rejection::output(format!(
        "it is {size} bytes of JSON, {max} are allowed"
    )))
}

fn check_metadata(object: &Map<String, Value>) -> Result<(), Rejection> {
    let metadata = match object.get("metadata") {
        None => return Ok(()),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(Rejection::output("`metadata` is not an object")),
    };
    for (field, why) in REFUSED_METADATA {
        match metadata.get(field) {
            None => {}
            // Clients that serialize typed objects write it; the plan leaves it out.
            Some(Value::Null) if field == "creationTimestamp" => {}
            Some(_) => {
                return Err(Rejection::output(format!(
                    "leave out `metadata.{field}`: {why}"
                )));
            }
        }
    }
    for (key, value) in texts(metadata, "labels")? {
        check_metadata_key("label", key)?;
        if !syntax::is_label_value(value) {
            return Err(Rejection::output(format!(
                "the label {key} has the value \"{value}\": use at most 63 letters, digits, dashes, dots and underscores, starting and ending with a letter or digit"
            )));
        }
    }
    for (key, _) in texts(metadata, "annotations")? {
        check_metadata_key("annotation", key)?;
    }
    Ok(())
}

fn check_metadata_key(what: &str, key: &str) -> Result<(), Rejection> {
    if key.starts_with(DOMAIN_PREFIX) {
        return Err(Rejection::output(format!(
            "leave out the {what} {key}: keys below {DOMAIN_PREFIX} are reserved for the host"
        )));
    }
    if !syntax::is_label_key(key) {
        return Err(Rejection::output(format!(
            "\"{key}\" is not a valid {what} key: use a name of at most 63 characters, optionally after a DNS subdomain and a slash"
        )));
    }
    Ok(())
}

/// Returns a string map in the metadata, such as `labels`.
fn texts<'a>(
    metadata: &'a Map<String, Value>,
    field: &str,
) -> Result<Vec<(&'a str, &'a str)>, Rejection> {
    let Some(value) = metadata.get(field) else {
        return Ok(Vec::new());
    };
    let Value::Object(entries) = value else {
        return Err(Rejection::output(format!(
            "`metadata.{field}` is not an object"
        )));
    };
    entries
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key.as_str(), text.as_str())),
            _ => Err(Rejection::output(format!(
                "`metadata.{field}.{key}` is not a string"
            ))),
        })
        .collect()
}

fn check_generate(child: &Child) -> Result<(), Rejection> {
    if child.generate.is_empty() {
        return Ok(());
    }
    if !child.kind.group_kind().is_secret() {
        return Err(Rejection::output(format!(
            "`generate` is for Secrets only, this is a {}",
            child.kind
        )));
    }
    if child.generate.len() > GENERATED_MAX {
        return Err(Rejection::output(format!(
            "`generate` has {} entries, {GENERATED_MAX} are allowed",
            child.generate.len()
        )));
    }
    let mut keys = BTreeSet::new();
    for entry in &child.generate {
        check_generated(entry)?;
        if !keys.insert(entry.key.as_str()) {
            return Err(Rejection::output(format!(
                "`generate` names the key \"{}\" twice",
                entry.key
            )));
        }
        // The API server copies `stringData` over `data`, generated values included.
        for field in ["data", "stringData"] {
            if child
                .object
                .get(field)
                .and_then(|data| data.get(&entry.key))
                .is_some()
            {
                return Err(Rejection::output(format!(
                    "the key \"{}\" is set in `{field}` and in `generate`: keep one",
                    entry.key
                )));
            }
        }
    }
    Ok(())
}

fn check_generated(entry: &Generated) -> Result<(), Rejection> {
    let Generated {
        key,
        length,
        alphabet,
        token,
    } = entry;
    if !syntax::is_data_key(key) {
        return Err(Rejection::output(format!(
            "`generate` has the key \"{key}\": use at most 253 letters, digits, dashes, dots and underscores"
        )));
    }
    if !(1..=GENERATED_CHARS_MAX).contains(length) {
        return Err(Rejection::output(format!(
            "`generate` asks for {length} characters for \"{key}\": ask for 1 to {GENERATED_CHARS_MAX}"
        )));
    }
    let characters: BTreeSet<u8> = alphabet.bytes().collect();
    let printable = alphabet.bytes().all(|c| (b' '..=b'~').contains(&c));
    // A character that is there twice would be drawn twice as often.
    if !printable || characters.len() < 2 || characters.len() != alphabet.len() {
        return Err(Rejection::output(format!(
            "`generate` has an alphabet for \"{key}\" that is not valid: use at least two printable ASCII characters, each once"
        )));
    }
    let is_token = |token: &String| {
        (1..=GENERATED_TOKEN_CHARS_MAX).contains(&token.len())
            && token.bytes().all(|c| (b' '..=b'~').contains(&c))
    };
    if !token.as_ref().is_none_or(is_token) {
        return Err(Rejection::output(format!(
            "`generate` has a token for \"{key}\" that is not valid: use 1 to {GENERATED_TOKEN_CHARS_MAX} printable ASCII characters"
        )));
    }
    Ok(())
}
