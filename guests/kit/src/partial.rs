//! Objects that parse only the fields that a guest needs.
//!
//! Parsing a whole Pod or Pod template takes most of a pass, and the code for these large types makes a component
//! larger and slow to compile.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// An observed object of the kind `K`, with only the spec and status fields that the guest needs.
///
/// Use it instead of `K` to read a child or an object from the host. Parsing skips fields that `Spec` and `Status` do
/// not have. An absent spec or status is the type's default.
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
    /// All metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The needed spec fields.
    #[serde(default)]
    pub spec: Spec,
    /// The needed status fields.
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
