//! Limits for tenants: a right to create a parent must not amount to rights that its creator lacks.
//!
//! The Pods of a parent use the images, Secrets and claims that the parent names. A user who may create
//! parents is perhaps not allowed to create Pods or to read Secrets. The plugin's configuration
//! therefore limits the names in a parent, and the functions here check them.
//!
//! ```
//! use innkeeper_sdk::tenants::check_image;
//!
//! let allowed = ["registry.example.com/team/".to_owned(), "memcached".to_owned()];
//! assert!(check_image("spec.image", "registry.example.com/team/cache:1", &allowed).is_ok());
//! assert!(check_image("spec.image", "memcached:1.6", &allowed).is_ok());
//! assert!(check_image("spec.image", "elsewhere.example.com/cache:1", &allowed).is_err());
//! ```

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hash::Hashed;
use crate::request::Request;

/// The annotation that shares an object of one parent with others: `<kind>/<name>` of a parent in the
/// same namespace, several separated by commas. Users who may edit the object set it.
pub const SHARED_WITH: &str = "innkeeper.dev/shared-with";

/// The label that the host sets on the children of all parents.
const PLUGIN: &str = "innkeeper.dev/plugin";
/// The annotation with the parent of a child that outlives it: `<group>/<kind>/<namespace>/<name>`,
/// and after a space the host's proof.
const RETAINED_FOR: &str = "innkeeper.dev/retained-for";

/// The Secrets and claims that a parent may name.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReferenceScope {
    /// Its own, those of no parent, and those of another parent with the annotation
    /// `innkeeper.dev/shared-with`.
    #[default]
    Shared,
    /// All of its namespace.
    Namespace,
}

/// Checks an image against the repositories that the configuration allows; an empty list allows all.
///
/// An entry is a repository (`registry.example.com/team/cache`), or the start of repositories if it
/// ends with a slash. Repositories are compared as written: `memcached` and
/// `docker.io/library/memcached` are two entries.
///
/// # Errors
///
/// The path of the field, the image and the allowed repositories.
pub fn check_image(path: &str, image: &str, allowed: &[String]) -> Result<(), String> {
    if allowed.is_empty() || is_listed(repository(image), allowed) {
        return Ok(());
    }
    Err(format!(
        "{path}: image {image} is outside the repositories that the plugin's configuration allows: {}",
        allowed.join(", ")
    ))
}

/// The part of an image reference before its tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    name[last..]
        .find(':')
        .map_or(name, |colon| &name[..last + colon])
}

/// True if a name is an entry, or begins with an entry that ends with a slash.
fn is_listed(name: &str, entries: &[String]) -> bool {
    entries
        .iter()
        .any(|entry| name == entry || entry.ends_with('/') && name.starts_with(entry.as_str()))
}

/// Checks the keys of annotations against those that the configuration allows; an empty list allows
/// none.
///
/// An entry is a key, or the start of keys if it ends with a slash.
///
/// # Errors
///
/// The path of the field and the first key outside the list.
pub fn check_allowed_annotations(
    path: &str,
    annotations: &BTreeMap<String, String>,
    allowed: &[String],
) -> Result<(), String> {
    match annotations.keys().find(|key| !is_listed(key, allowed)) {
        None => Ok(()),
        Some(key) => Err(format!(
            "{path}: the plugin's configuration does not allow the annotation {key}"
        )),
    }
}

/// Checks that the parent may use an object of its namespace that it names.
///
/// An object of another parent carries the host's label, and its owner reference or the annotation
/// for retained children names that parent. Objects without the label belong to no parent.
///
/// # Errors
///
/// The object, and the annotation that would share it.
pub fn check_reference(
    request: &Request,
    scope: ReferenceScope,
    kind: &str,
    metadata: &ObjectMeta,
) -> Result<(), String> {
    let parent = format!("{}/{}", request.parent_kind(), request.name());
    if scope == ReferenceScope::Namespace
        || !belongs_to_another(request, metadata)
        || annotation(metadata, SHARED_WITH)
            .is_some_and(|shared| shared.split(',').any(|with| with.trim() == parent))
    {
        return Ok(());
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    Err(format!(
        "{kind} {name} belongs to another parent: annotate it with {SHARED_WITH}: {parent}, or name another"
    ))
}

/// Checks all of these Secrets as [`check_reference`] does; ConfigMaps hold no secrets and pass.
///
/// # Errors
///
/// As of [`check_reference`], for the first refused Secret.
pub fn check_secrets<'a>(
    request: &Request,
    scope: ReferenceScope,
    objects: impl IntoIterator<Item = &'a Hashed>,
) -> Result<(), String> {
    objects
        .into_iter()
        .filter(|object| object.kind == "Secret")
        .try_for_each(|object| check_reference(request, scope, &object.kind, &object.metadata))
}

fn belongs_to_another(request: &Request, metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.iter();
    if !labels.flatten().any(|(key, _)| key == PLUGIN) {
        return false;
    }
    let identity = [
        request.parent_group(),
        request.parent_kind(),
        request.namespace(),
        request.name(),
    ]
    .join("/");
    let retained_for = annotation(metadata, RETAINED_FOR).and_then(|text| text.split(' ').next());
    let is_retained_for_this = retained_for == Some(&identity);
    let mut owners = metadata.owner_references.iter().flatten();
    let is_owned_by_this = owners.any(|owner| owner.uid == request.uid());
    !(is_retained_for_this || is_owned_by_this)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::{ReferenceScope, check_allowed_annotations, check_image, check_reference};
    use crate::testing::TestRequest;

    #[test]
    fn compares_repositories_and_not_tags() {
        let allowed = ["cache", "registry:5000/team/"].map(str::to_owned);
        for image in [
            "cache",
            "cache:1",
            "cache@sha256:01",
            "cache:1@sha256:01",
            "registry:5000/team/cache:1",
            "registry:5000/team/a/b",
        ] {
            assert_eq!(
                check_image("spec.image", image, &allowed),
                Ok(()),
                "{image}"
            );
            assert_eq!(check_image("spec.image", image, &[]), Ok(()), "{image}");
        }
        for image in [
            "cached",
            "cache/evil",
            "evil/cache:1",
            "registry:5000/teams/cache",
            "registry:5000/team",
            "registry:5001/team/cache",
            "",
        ] {
            assert!(
                check_image("spec.image", image, &allowed).is_err(),
                "{image}"
            );
        }
        assert_eq!(
            check_image("spec.image", "evil:1", &allowed).unwrap_err(),
            "spec.image: image evil:1 is outside the repositories that the plugin's configuration \
             allows: cache, registry:5000/team/",
        );
    }

    #[test]
    fn allows_annotations_of_the_list_alone() {
        let given = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
        let allowed = ["cert-manager.io/", "example.com/a"].map(str::to_owned);
        let check = |key: &str| check_allowed_annotations("spec.ingress", &given(key), &allowed);
        assert_eq!(check("cert-manager.io/issuer"), Ok(()));
        assert_eq!(check("example.com/a"), Ok(()));
        assert_eq!(
            check("example.com/ab").unwrap_err(),
            "spec.ingress: the plugin's configuration does not allow the annotation example.com/ab",
        );
        assert!(check_allowed_annotations("a", &given("b"), &[]).is_err());
        assert!(check_allowed_annotations("a", &BTreeMap::new(), &[]).is_ok());
    }

    #[test]
    fn refuses_objects_of_other_parents() {
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "Pond",
            "metadata": {"name": "a", "namespace": "n", "uid": "u1"},
        });
        let request = TestRequest::new(&parent).build();
        let check = |scope, metadata: Value| {
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            check_reference(&request, scope, "Secret", &metadata)
        };
        let label = json!({"innkeeper.dev/plugin": "pond"});
        let owner = |uid: &str| json!([{"apiVersion": "example.com/v1", "kind": "Pond", "name": "x", "uid": uid}]);
        let retained =
            |parent: &str| json!({"innkeeper.dev/retained-for": format!("{parent} v1:00")});
        let shared = |with: &str| json!({"innkeeper.dev/shared-with": with});
        let allowed = [
            json!({"name": "s"}),
            json!({"name": "s", "ownerReferences": owner("elsewhere")}),
            json!({"name": "s", "labels": label, "ownerReferences": owner("u1")}),
            json!({"name": "s", "labels": label, "annotations": retained("example.com/Pond/n/a")}),
            json!({"name": "s", "labels": label, "annotations": shared("Pond/b, Pond/a")}),
        ];
        for metadata in allowed {
            assert_eq!(
                check(ReferenceScope::Shared, metadata.clone()),
                Ok(()),
                "{metadata}"
            );
        }
        let refused = [
            json!({"name": "s", "labels": label}),
            json!({"name": "s", "labels": label, "ownerReferences": owner("u2")}),
            json!({"name": "s", "labels": label, "annotations": retained("example.com/Pond/n/b")}),
            json!({"name": "s", "labels": label, "annotations": retained("other.com/Pond/n/a")}),
            json!({"name": "s", "labels": label, "annotations": shared("Pond/b")}),
            json!({"name": "s", "labels": label, "annotations": shared("Lake/a")}),
        ];
        for metadata in refused {
            assert_eq!(
                check(ReferenceScope::Shared, metadata.clone()).unwrap_err(),
                "Secret s belongs to another parent: annotate it with innkeeper.dev/shared-with: \
                 Pond/a, or name another",
                "{metadata}",
            );
            assert_eq!(check(ReferenceScope::Namespace, metadata), Ok(()));
        }
    }
}
