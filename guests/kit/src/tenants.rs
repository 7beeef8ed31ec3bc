//! Limits for tenants: permission to create a parent must not imply permissions that the user lacks.
//!
//! A parent's Pods use the images, Secrets and claims that the parent names, but a user who may create parents may not
//! be allowed to create Pods or read Secrets. The plugin's configuration therefore limits the names in a parent, and
//! these functions check them.
//!
//! ```
//! use innkeeper_kit::tenants::check_image;
//!
//! let allowed = ["registry.example.com/team/".to_owned(), "memcached".to_owned()];
//! assert!(check_image("spec.image", "registry.example.com/team/cache:1", &allowed).is_ok());
//! assert!(check_image("spec.image", "memcached:1.6", &allowed).is_ok());
//! assert!(check_image("spec.image", "elsewhere.example.com/cache:1", &allowed).is_err());
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::references::Found;
use crate::workload::Workload;
use innkeeper_sdk::hash::Hashed;
use innkeeper_sdk::request::Request;

mod code;
mod form;

pub use code::{check_environment, check_mount};
pub use form::Form;

pub use crate::references::ReferenceScope;

/// Annotation on an object of one parent that shares it with others: `<kind>.<group>/<name>` of a parent
/// in the same namespace, several separated by commas. Users who may edit the object set it.
///
/// `<kind>/<name>` stands for the parents of this kind in all groups, so it is for kinds that only one
/// plugin of the cluster has.
pub const SHARED_WITH: &str = "innkeeper.dev/shared-with";

/// The label that the host sets on the children of all parents.
const PLUGIN: &str = "innkeeper.dev/plugin";
/// The annotation with the parent of a child that outlives it: `<group>/<kind>/<namespace>/<name>`,
/// and after a space the host's proof.
const RETAINED_FOR: &str = "innkeeper.dev/retained-for";

/// Checks an image against the repositories that the configuration allows; an empty list allows all.
///
/// An entry is a repository (`registry.example.com/team/cache`), or a prefix if it ends with a slash. Repositories are
/// compared as written: `memcached` and `docker.io/library/memcached` differ.
///
/// # Errors
///
/// Returns the field's path, the image and the allowed repositories.
pub fn check_image(path: &str, image: &str, allowed: &[String]) -> Result<(), String> {
    if allowed.is_empty() || is_listed(repository(image), allowed) {
        return Ok(());
    }
    Err(format!(
        "{path}: image {image} is outside the repositories that the plugin's configuration allows: {}",
        allowed.join(", ")
    ))
}

/// Returns an image reference without tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    // A colon before the last slash belongs to the registry's port.
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    name[last..]
        .find(':')
        .map_or(name, |colon| &name[..last + colon])
}

/// Returns whether a name is an entry, or starts with an entry that ends with a slash.
pub fn is_listed(name: &str, entries: &[String]) -> bool {
    entries
        .iter()
        .any(|entry| name == entry || entry.ends_with('/') && name.starts_with(entry.as_str()))
}

/// Checks names against a list in the configuration; an empty list allows none.
///
/// An entry is a name, or a prefix if it ends with a slash. Use it for names that other controllers obey: label and
/// annotation keys, service accounts, Service types.
///
/// # Errors
///
/// Returns the field's path, the list's path and the first name that is not in the list.
pub fn check_listed<'a>(
    path: &str,
    list: &str,
    names: impl IntoIterator<Item = &'a String>,
    allowed: &[String],
) -> Result<(), String> {
    let mut names = names.into_iter();
    match names.find(|name| !is_listed(name, allowed)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "{path}: {list} of the plugin's configuration does not list {name}"
        )),
    }
}

/// A parent that names objects: usually the request's parent, or one on whose behalf it acts.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The parent's API group.
    pub group: &'a str,
    /// The parent's kind.
    pub kind: &'a str,
    /// The parent's namespace.
    pub namespace: &'a str,
    /// The parent's name.
    pub name: &'a str,
    /// The parent's UID. None: only objects retained for the parent belong to it.
    pub uid: Option<&'a str>,
}

impl<'a> From<&'a Request> for Claimant<'a> {
    fn from(request: &'a Request) -> Self {
        Self {
            group: request.parent_group(),
            kind: request.parent_kind(),
            namespace: request.namespace(),
            name: request.name(),
            uid: Some(request.uid()),
        }
    }
}

/// Checks that a parent may use a named object in the same namespace.
///
/// An object of another parent carries the host's label, and its owner reference or the annotation
/// for retained children names that parent. Objects without the label belong to no parent.
///
/// # Errors
///
/// The object, and the annotation that would share it.
pub fn check_reference<'a>(
    claimant: impl Into<Claimant<'a>>,
    scope: ReferenceScope,
    kind: &str,
    metadata: &ObjectMeta,
) -> Result<(), String> {
    let claimant = claimant.into();
    let parent_kind = claimant.kind;
    let parent = claimant.name;
    let parents = [
        format!("{parent_kind}.{}/{parent}", claimant.group),
        format!("{parent_kind}/{parent}"),
    ];
    let is_shared = |shared: &str| {
        shared
            .split(',')
            .map(str::trim)
            .any(|entry| parents.iter().any(|parent| parent == entry))
    };
    if scope == ReferenceScope::Namespace
        || !belongs_to_another(claimant, metadata)
        || annotation(metadata, SHARED_WITH).is_some_and(is_shared)
    {
        return Ok(());
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    Err(format!(
        "{kind} {name} belongs to another parent: annotate it with {SHARED_WITH}: {}, or name another",
        parents[0]
    ))
}

/// Checks all these Secrets as [`check_reference`] does; ConfigMaps hold no secrets and pass.
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

/// Checks Secrets for pulling images as [`check_pod_secrets`] does; those that the running workload names may be missing.
///
/// Running Pods use a named Secret as soon as it exists, so refusing the parent would protect nothing, and would block
/// later changes.
///
/// # Errors
///
/// `spec.imagePullSecrets: ...`, for a refused Secret or for all missing ones that are new.
pub fn check_pull_secrets(
    request: &Request,
    scope: ReferenceScope,
    found: &Found,
    running: Option<&Workload>,
) -> Result<(), String> {
    let may_miss = |name: &str| running.is_some_and(|workload| workload.names_secret(name));
    check_pod_secrets("spec.imagePullSecrets", request, scope, found, may_miss)
}

/// Checks the Secrets of a field that Pods use as [`check_reference`] does, and that those exist which
/// [`Found::awaited_secrets`] requires, but for those whose name may be missing.
///
/// # Errors
///
/// The path of the field, for a refused Secret or for all missing ones that may not be.
pub fn check_pod_secrets(
    path: &str,
    request: &Request,
    scope: ReferenceScope,
    found: &Found,
    may_miss: impl Fn(&str) -> bool,
) -> Result<(), String> {
    check_secrets(request, scope, found.objects())
        .map_err(|problem| format!("{path}: {problem}"))?;
    let missing: Vec<&str> = found
        .awaited_secrets(scope)
        .filter(|name| !may_miss(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("{path}: Secret not found: {}", missing.join(", ")))
}

fn belongs_to_another(claimant: Claimant<'_>, metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.iter();
    if !labels.flatten().any(|(key, _)| key == PLUGIN) {
        return false;
    }
    let identity = [
        claimant.group,
        claimant.kind,
        claimant.namespace,
        claimant.name,
    ]
    .join("/");
    let retained_for = annotation(metadata, RETAINED_FOR).and_then(|text| text.split(' ').next());
    let is_retained_for_this = retained_for == Some(&identity);
    let is_owned_by_this = metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| claimant.uid == Some(&*owner.uid));
    !(is_retained_for_this || is_owned_by_this)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::LocalObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };
    use serde_json::{Value, json};

    use super::{ReferenceScope, check_image, check_listed, check_pull_secrets, check_reference};
    use crate::references::References;
    use innkeeper_sdk::testing::{FakeHost, TestRequest};

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
    fn allows_names_of_the_list_alone() {
        let allowed = ["cert-manager.io/", "example.com/a"].map(str::to_owned);
        let check = |name: &str| {
            check_listed(
                "spec.labels",
                "tenants.labels",
                [&name.to_owned()],
                &allowed,
            )
        };
        assert_eq!(check("cert-manager.io/issuer"), Ok(()));
        assert_eq!(check("example.com/a"), Ok(()));
        assert_eq!(
            check("example.com/ab").unwrap_err(),
            "spec.labels: tenants.labels of the plugin's configuration does not list example.com/ab",
        );
        assert!(check_listed("a", "b", [&"c".to_owned()], &[]).is_err());
        assert!(check_listed("a", "b", [], &[]).is_ok());
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
            json!({"name": "s", "labels": label, "annotations": shared("Pond.example.com/a")}),
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
            json!({"name": "s", "labels": label, "annotations": shared("Pond.other.com/a")}),
            json!({"name": "s", "labels": label, "annotations": shared("Pond.example.com/b")}),
            json!({"name": "s", "labels": label, "annotations": shared("Pond")}),
        ];
        for metadata in refused {
            assert_eq!(
                check(ReferenceScope::Shared, metadata.clone()).unwrap_err(),
                "Secret s belongs to another parent: annotate it with innkeeper.dev/shared-with: \
                 Pond.example.com/a, or name another",
                "{metadata}",
            );
            assert_eq!(check(ReferenceScope::Namespace, metadata), Ok(()));
        }
    }

    #[test]
    fn pull_secrets_exist_and_are_open() {
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "Pond",
            "metadata": {"name": "a", "namespace": "n", "uid": "u1"},
        });
        let request = TestRequest::new(&parent).build();
        let check = |scope, secrets: &[Value]| {
            let named = ["x", ""].map(|name| LocalObjectReference {
                name: name.to_owned(),
            });
            let host = FakeHost::new().objects(secrets);
            let references = References::new()
                .pull_secrets(&named)
                .read(&request, &host)
                .unwrap();
            check_pull_secrets(&request, scope, &references, None)
        };
        let secret = |labels: Value| {
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "x", "namespace": "n", "labels": labels},
            })
        };
        let shared = ReferenceScope::Shared;
        let namespace = ReferenceScope::Namespace;
        assert_eq!(check(shared, &[secret(json!({}))]), Ok(()));
        assert_eq!(
            check(shared, &[]).unwrap_err(),
            "spec.imagePullSecrets: Secret not found: x",
        );
        let foreign = secret(json!({"innkeeper.dev/plugin": "pond"}));
        assert_eq!(
            check(shared, std::slice::from_ref(&foreign)).unwrap_err(),
            "spec.imagePullSecrets: Secret x belongs to another parent: annotate it with \
             innkeeper.dev/shared-with: Pond.example.com/a, or name another",
        );
        assert_eq!(check(namespace, &[]), Ok(()));
        assert_eq!(check(namespace, &[foreign]), Ok(()));
    }
}
