//! PersistentVolumeClaims, which may grow and never shrink.
//!
//! Kubernetes refuses a claim with a smaller request, another storage class or other access modes.
//! A reconciler therefore states the declared or the observed size, whichever is larger, and returns `invalid` if class
//! or modes differ.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Amount;
use innkeeper_sdk::child::{Child, metadata};
use innkeeper_sdk::children::{Observed, Reads, annotation_pointer};
use innkeeper_sdk::fault::Fault;
use innkeeper_sdk::host::Host;
use innkeeper_sdk::kinds::{ChildKinds, Includes};
use innkeeper_sdk::request::Request;

/// Access mode of a volume.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// Mounted by one node.
    ReadWriteOnce,
    /// Mounted by many nodes, for reading.
    ReadOnlyMany,
    /// Mounted by many nodes.
    ReadWriteMany,
    /// Mounted by one pod.
    ReadWriteOncePod,
}

impl AccessMode {
    /// The text in a claim.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadOnlyMany => "ReadOnlyMany",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
        }
    }
}

/// Requires a quantity in the field `size`. The other size rules accept any other text, so that the user gets one
/// message.
///
/// ```
/// use innkeeper_kit::claim;
/// use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// use kube::KubeSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(KubeSchema, Serialize, Deserialize)]
/// #[x_kube(
///     validation = Rule::new(claim::SIZE_IS_QUANTITY).message("size must be a quantity"),
///     validation = Rule::new(claim::SIZE_NEVER_SHRINKS).message("size cannot shrink")
/// )]
/// struct Storage {
///     size: Quantity,
/// }
/// ```
pub const SIZE_IS_QUANTITY: &str = "isQuantity(string(self.size))";

/// Forbids a smaller `size`.
pub const SIZE_NEVER_SHRINKS: &str = "!isQuantity(string(self.size)) || !isQuantity(string(oldSelf.size)) \
     || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0";

/// Requires a `size` above zero.
pub const SIZE_IS_POSITIVE: &str =
    "!isQuantity(string(self.size)) || quantity(string(self.size)).isGreaterThan(quantity('0'))";

/// Makes the field `storageClassName` immutable.
pub const CLASS_IS_IMMUTABLE: &str = "has(self.storageClassName) == has(oldSelf.storageClassName) \
     && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)";

/// Makes the field `accessModes` immutable.
pub const ACCESS_MODES_ARE_IMMUTABLE: &str = "self.accessModes == oldSelf.accessModes";

/// A claim as a parent declares it.
///
/// ```
/// use innkeeper_kit::claim::{DeclaredClaim, ObservedClaim};
/// use innkeeper_sdk::child::metadata;
/// use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// use serde_json::json;
///
/// let claim = DeclaredClaim {
///     size: Quantity("10Gi".to_owned()),
///     storage_class_name: None,
///     access_modes: vec!["ReadWriteOnce".to_owned()],
/// };
/// let observed: ObservedClaim = serde_json::from_value(json!({
///     "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
/// }))
/// .unwrap();
/// claim.check("spec.storage", "data", Some(&observed)).unwrap();
/// let object = claim.object(metadata("data", &Default::default()), Some(&observed));
/// let requests = object.spec.unwrap().resources.unwrap().requests.unwrap();
/// assert_eq!(requests["storage"].0, "20Gi");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredClaim {
    /// The requested storage.
    pub size: Quantity,
    /// The storage class; the cluster's default when absent.
    pub storage_class_name: Option<String>,
    /// The access modes as Kubernetes writes them: `ReadWriteOnce`.
    pub access_modes: Vec<String>,
}

impl DeclaredClaim {
    /// Returns the child object, which requests the declared or the observed size, whichever is larger.
    ///
    /// The observed size can be the larger one since a former parent of the same name, or since a
    /// user has grown the claim.
    pub fn object(
        &self,
        metadata: ObjectMeta,
        observed: Option<&ObservedClaim>,
    ) -> PersistentVolumeClaim {
        let requested = observed.and_then(ObservedClaim::request);
        let size = larger(&self.size, requested).clone();
        PersistentVolumeClaim {
            metadata,
            spec: Some(PersistentVolumeClaimSpec {
                access_modes: Some(self.access_modes.clone()),
                storage_class_name: self.storage_class_name.clone(),
                resources: Some(VolumeResourceRequirements {
                    requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                    ..VolumeResourceRequirements::default()
                }),
                ..PersistentVolumeClaimSpec::default()
            }),
            ..PersistentVolumeClaim::default()
        }
    }

    /// Checks the declared size, and that an observed claim of this name has the declared class and
    /// access modes; `path` is the field of the parent: `spec.storage`.
    ///
    /// A declaration without a class fits each class, because the API server writes the default
    /// class into the claim.
    ///
    /// # Errors
    ///
    /// `<path>.size: "<text>" is not a quantity`, or
    /// `<path>: claim <name> exists with <field> <value>, which cannot change`.
    pub fn check(
        &self,
        path: &str,
        name: &str,
        observed: Option<&ObservedClaim>,
    ) -> Result<(), String> {
        let Quantity(size) = &self.size;
        if Amount::parse(size).is_none() {
            return Err(format!("{path}.size: \"{size}\" is not a quantity"));
        }
        let Some(observed) = observed else {
            return Ok(());
        };
        let differs = |field: &str, value: &str| {
            format!("{path}: claim {name} exists with {field} {value}, which cannot change")
        };
        // Without a declared class, the default class of the API server is not read.
        if let Some(declared) = &self.storage_class_name
            && let Some(class) = observed.storage_class_name()
            && declared != class
        {
            return Err(differs("storageClassName", class));
        }
        let modes = sorted(observed.access_modes());
        if sorted(&self.access_modes) != modes {
            return Err(differs("accessModes", &modes.join(", ")));
        }
        Ok(())
    }
}

fn sorted(modes: &[String]) -> Vec<&str> {
    let mut modes: Vec<&str> = modes.iter().map(String::as_str).collect();
    modes.sort_unstable();
    modes
}

/// Returns the larger quantity, or the declared one if there is no observed one.
pub fn larger<'a>(declared: &'a Quantity, observed: Option<&'a Quantity>) -> &'a Quantity {
    match observed {
        Some(observed) if Amount::from_quantity(observed) > Amount::from_quantity(declared) => {
            observed
        }
        _ => declared,
    }
}

/// Returns a held child for an existing claim.
///
/// Every answer needs it, also one that does not use the claim: data must never be pruned.
pub fn existing<K: ChildKinds + Includes<PersistentVolumeClaim>>(
    key: impl Into<String>,
    name: &str,
) -> Child {
    let claim = PersistentVolumeClaim {
        metadata: metadata(name, &BTreeMap::new()),
        ..PersistentVolumeClaim::default()
    };
    K::child(key, &claim).hold()
}

/// Returns whether Pods on different nodes can write to a volume with this access mode.
pub fn is_shared(access_mode: &str) -> bool {
    access_mode == "ReadWriteMany"
}

/// Reads a claim in the parent's namespace: the child with this name, or else the cluster's object.
///
/// With [`Access::Metadata`](innkeeper_sdk::manifest::Access::Metadata) the claim has only metadata.
///
/// # Errors
///
/// `retry` if the read is not granted or fails, `fatal` if the child does not parse.
pub fn find(
    request: &Request,
    host: &dyn Host,
    name: &str,
) -> Result<Option<ObservedClaim>, Fault> {
    // A child is in the request, and needs neither a read nor a grant.
    if let Some(child) = request.children.find::<PersistentVolumeClaim>(name) {
        return ObservedClaim::new(child).map(Some);
    }
    let api_version = PersistentVolumeClaim::api_version(&());
    let kind = PersistentVolumeClaim::kind(&());
    Ok(host.get_as(&api_version, &kind, Some(request.namespace()), name)?)
}

/// A claim in the cluster, with the few fields that a reconciler compares.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObservedClaim {
    metadata: ObjectMeta,
    spec: ClaimSpec,
    /// The methods record what they return, because predictions hold only if that stays the same.
    #[serde(skip)]
    reads: Reads,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSpec {
    access_modes: Vec<String>,
    storage_class_name: Option<String>,
    resources: ClaimResources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ClaimResources {
    requests: BTreeMap<String, Quantity>,
}

impl ObservedClaim {
    /// The claim that is an observed child.
    ///
    /// # Errors
    ///
    /// `retry` with the field that does not parse.
    pub fn new(child: &Observed) -> Result<Self, Fault> {
        let (claim, reads) = child.parse_recorded::<Self>()?;
        Ok(Self { reads, ..claim })
    }

    /// The access modes as Kubernetes writes them: `ReadWriteOnce`.
    pub fn access_modes(&self) -> &[String] {
        self.reads.add("/spec/accessModes");
        &self.spec.access_modes
    }

    /// The storage class; the API server fills in the default class, and none where the cluster has no default.
    pub fn storage_class_name(&self) -> Option<&str> {
        self.reads.add("/spec/storageClassName");
        self.spec.storage_class_name.as_deref()
    }

    /// The requested storage.
    pub fn request(&self) -> Option<&Quantity> {
        self.reads.add("/spec/resources/requests/storage");
        self.spec.resources.requests.get("storage")
    }

    /// Returns whether Pods on different nodes can write to the volume.
    pub fn is_shared(&self) -> bool {
        self.access_modes().iter().any(|mode| is_shared(mode))
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.reads.add(&annotation_pointer(key));
        let value = self.metadata.annotations.as_ref()?.get(key)?;
        Some(value)
    }

    /// The metadata, which the API server and the host complete: a report about a new claim's metadata is not predicted.
    pub fn metadata(&self) -> &ObjectMeta {
        self.reads.add("/metadata");
        &self.metadata
    }

    /// Returns whether the garbage collector deletes the claim with the object that has this UID.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.reads.add("/metadata/ownerReferences");
        self.metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.uid == uid)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::{DeclaredClaim, ObservedClaim, existing};
    use innkeeper_sdk::child::{ApplyPolicy, metadata};

    fn declared(size: &str, class: Option<&str>) -> DeclaredClaim {
        DeclaredClaim {
            size: Quantity(size.to_owned()),
            storage_class_name: class.map(ToOwned::to_owned),
            access_modes: vec!["ReadWriteOnce".to_owned(), "ReadOnlyMany".to_owned()],
        }
    }

    fn observed(size: &str, modes: &[&str]) -> ObservedClaim {
        serde_json::from_value(json!({
            "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "uid": "u", "name": "a"}]},
            "spec": {
                "accessModes": modes, "storageClassName": "fast",
                "resources": {"requests": {"storage": size}},
            },
        }))
        .unwrap()
    }

    innkeeper_sdk::child_kinds!(Kinds: k8s_openapi::api::core::v1::PersistentVolumeClaim);

    #[test]
    fn never_shrinks() {
        let requested = |size: &str, observed: Option<&ObservedClaim>| {
            let object = declared(size, None).object(metadata("a", &BTreeMap::new()), observed);
            json!(object)["spec"]["resources"]["requests"]["storage"].clone()
        };
        let large = observed("20Gi", &["ReadWriteOnce"]);
        assert_eq!(requested("10Gi", None), "10Gi");
        assert_eq!(requested("10Gi", Some(&large)), "20Gi");
        assert_eq!(requested("30Gi", Some(&large)), "30Gi");
        assert_eq!(requested("20480Mi", Some(&large)), "20480Mi");
        assert_eq!(requested("10Gi", Some(&ObservedClaim::default())), "10Gi");
    }

    #[test]
    fn names_the_field_that_cannot_change() {
        let check = |claim: DeclaredClaim, observed: &ObservedClaim| {
            claim.check("spec.storage", "a", Some(observed)).err()
        };
        let same = observed("1Gi", &["ReadOnlyMany", "ReadWriteOnce"]);
        assert_eq!(check(declared("1Gi", None), &same), None);
        assert_eq!(check(declared("1Gi", Some("fast")), &same), None);
        assert_eq!(
            check(declared("1Gi", Some("slow")), &same).as_deref(),
            Some("spec.storage: claim a exists with storageClassName fast, which cannot change"),
        );
        let other = observed("1Gi", &["ReadWriteMany"]);
        assert_eq!(
            check(declared("1Gi", None), &other).as_deref(),
            Some(
                "spec.storage: claim a exists with accessModes ReadWriteMany, which cannot change"
            ),
        );
        assert_eq!(
            check(declared("much", None), &same).as_deref(),
            Some("spec.storage.size: \"much\" is not a quantity"),
        );
    }

    #[test]
    fn knows_shared_and_owned_claims() {
        assert!(observed("1Gi", &["ReadWriteMany"]).is_shared());
        assert!(!observed("1Gi", &["ReadWriteOnce", "ReadOnlyMany"]).is_shared());
        assert!(observed("1Gi", &[]).is_owned_by("u"));
        assert!(!ObservedClaim::default().is_owned_by("u"));
    }

    #[test]
    fn holds_a_claim_by_its_name_alone() {
        let child = existing::<Kinds>("data", "a");
        assert_eq!(child.apply, ApplyPolicy::Hold);
        assert_eq!(child.object["metadata"], json!({"name": "a"}));
        assert_eq!(child.kind_and_name(), "PersistentVolumeClaim/a");
    }
}
