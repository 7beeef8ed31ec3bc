//! Objects that parse only the fields that a guest needs.
//!
//! Parsing a whole Pod or Pod template takes most of a pass, and the code for these large types makes a component
//! larger and slow to compile.

use std::borrow::Cow;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use innkeeper_sdk::children::{Children, annotation_pointer};
use innkeeper_sdk::fault::Fault;

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

/// Returns the child of this kind and name with these annotations and parts, as JSON pointers; all else reads as absent.
///
/// A report about a new or changed child is predicted only if the API server answers with the same values in all parts
/// that were read, so name no more than the guest needs (see [`Observed`]).
///
/// ```
/// use innkeeper_kit::partial::{self, Partial};
/// use innkeeper_sdk::testing::TestRequest;
/// use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus};
/// use serde::de::IgnoredAny;
/// use serde_json::json;
///
/// type Schedule = Partial<CronJob, IgnoredAny, CronJobStatus>;
///
/// let parent = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "a"}});
/// let nightly = json!({
///     "apiVersion": "batch/v1", "kind": "CronJob",
///     "metadata": {"name": "a", "annotations": {"example.com/hash": "1f"}},
/// });
/// let children = TestRequest::new(&parent).child("nightly", &nightly).build().children;
/// let schedule: Option<Schedule> =
///     partial::find(&children, "a", &["example.com/hash"], &["/status/lastScheduleTime"]).unwrap();
/// assert!(schedule.unwrap().status.last_schedule_time.is_none());
/// ```
///
/// # Errors
///
/// `retry` with the field that does not parse.
///
/// [`Observed`]: innkeeper_sdk::children::Observed
pub fn find<T>(
    children: &Children,
    name: &str,
    annotations: &[&str],
    parts: &[&str],
) -> Result<Option<T>, Fault>
where
    T: Resource<DynamicType = ()> + DeserializeOwned,
{
    let Some(child) = children.find::<T>(name) else {
        return Ok(None);
    };
    let annotations: Vec<String> = annotations
        .iter()
        .map(|key| annotation_pointer(key))
        .collect();
    let pointers: Vec<&str> = annotations
        .iter()
        .map(String::as_str)
        .chain(parts.iter().copied())
        .collect();
    child.parts(&pointers).map(Some)
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
