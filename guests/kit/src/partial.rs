//! Objects of which a guest parses only the parts that it needs.
//!
//! The type of a whole Pod or of a Pod template is large: to parse it takes most of a pass, and its code makes the
//! component larger and slow to compile.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// An observed object of the kind `K`, with the parts of its spec and status that the guest needs.
///
/// Use it in the place of `K` to read an object: as a child, or from the host. Fields that `Spec` and `Status` do not
/// have are skipped. An absent spec or status has its default.
///
/// ```
/// use innkeeper_kit::partial::Partial;
/// use innkeeper_sdk::testing::TestRequest;
/// use k8s_openapi::api::core::v1::Service;
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, Default)]
/// #[serde(default)]
/// struct Address {
///     #[serde(rename = "clusterIP")]
///     cluster_ip: String,
/// }
///
/// let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
/// let service = json!({
///     "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
///     "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]},
/// });
/// let request = TestRequest::new(&parent).child("web", &service).build();
/// let service: Partial<Service, Address> = request.children.get("a").unwrap().unwrap();
/// assert_eq!(service.spec.cluster_ip, "10.0.0.7");
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "Spec: Deserialize<'de> + Default, Status: Deserialize<'de> + Default")]
pub struct Partial<K, Spec = IgnoredAny, Status = IgnoredAny> {
    /// The whole metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The parts of the spec.
    #[serde(default)]
    pub spec: Spec,
    /// The parts of the status.
    #[serde(default)]
    pub status: Status,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K, Spec, Status> Resource for Partial<K, Spec, Status>
where
    K: Resource<DynamicType = ()>,
{
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
