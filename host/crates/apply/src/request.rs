//! Write requests in the API server's forms.

use http::header::{CONTENT_TYPE, HeaderValue};
use innkeeper_model::{Gvk, Resource, ResourceVersion, Scope, Uid};
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{self, request},
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// A write's type, which decides what an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// An apply that only creates.
    Create,
    /// An apply that is bound to the observed version.
    Update,
    /// An apply that is bound to no version.
    Apply,
    /// An apply for the status, bound to the observed version.
    Status,
    /// A JSON patch with tests.
    JsonPatch,
    /// A deletion, bound to the observed version.
    Delete,
}

/// One write.
pub(super) struct WriteRequest<'a> {
    /// The write's type.
    pub(super) verb: Verb,
    /// The written object.
    pub(super) address: Address<'a>,
    /// The write in words, as it reads after "failed to".
    pub(super) what: String,
    /// The request itself.
    pub(super) http: Http,
}

type Http = Result<http::Request<Vec<u8>>, request::Error>;

impl WriteRequest<'_> {
    /// Impersonates a user, so that the API server checks that user's permissions.
    ///
    /// A name that no header can hold makes it a request that is never sent.
    pub(super) fn act_as(mut self, user: Option<&str>) -> Self {
        let Some(user) = user else {
            return self;
        };
        self.http = self.http.and_then(|mut http| {
            let name = HeaderValue::from_str(user)
                .map_err(|source| request::Error::BuildRequest(source.into()))?;
            http.headers_mut().insert("Impersonate-User", name);
            Ok(http)
        });
        self
    }
}

/// One object's address.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    resource: &'a Resource,
    namespace: Option<&'a str>,
    name: &'a str,
}

/// Returns the resource for a kind that every cluster serves.
pub(super) fn built_in(group: &str, version: &str, kind: &str, plural: &str) -> Resource {
    Resource {
        kind: Gvk::new(group, version, kind),
        plural: plural.into(),
        // Also right for cluster-scoped kinds: their objects are addressed without a namespace.
        scope: Scope::Namespaced,
    }
}

impl<'a> Address<'a> {
    pub(super) const fn new(
        resource: &'a Resource,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> Self {
        Self {
            resource,
            namespace,
            name,
        }
    }

    fn collection(self) -> core::Request {
        core::Request::new(self.resource.path(self.namespace))
    }

    fn what(self, verb: &str) -> String {
        let kind = &self.resource.kind;
        match self.namespace {
            Some(namespace) => format!("{verb} {kind} {namespace}/{}", self.name),
            None => format!("{verb} {kind} {}", self.name),
        }
    }

    /// Returns an object with nothing but the identity.
    pub(super) fn body(self) -> Map<String, Value> {
        let kind = &self.resource.kind;
        let mut metadata = json!({"name": self.name});
        if let Some(namespace) = self.namespace {
            metadata["namespace"] = namespace.into();
        }
        Map::from_iter([
            ("apiVersion".to_owned(), kind.api_version().into()),
            ("kind".to_owned(), (*kind.kind).into()),
            ("metadata".to_owned(), metadata),
        ])
    }

    /// Returns true if the object has this name and namespace and, where they are given, this version and kind.
    pub(super) fn is_of(self, name: &str, namespace: Option<&str>, kind: (&str, &str)) -> bool {
        let requested = &self.resource.kind;
        let is_kind = kind == ("", "") || kind == (&*requested.api_version(), &*requested.kind);
        is_kind && name == self.name && namespace == self.namespace
    }

    fn request(self, verb: Verb, words: &str, http: Http) -> WriteRequest<'a> {
        let what = self.what(words);
        let address = self;
        WriteRequest {
            verb,
            address,
            what,
            http,
        }
    }

    /// Creates by server-side apply, and never merges into an existing object.
    pub(super) fn create(self, manager: &str, body: &Map<String, Value>) -> WriteRequest<'a> {
        // The API server takes this version for one that no existing object can have.
        let bound = [("resourceVersion", "1")];
        let params = PatchParams::apply(manager);
        let patch = Patch::Apply(BoundObject::new(body, &bound));
        let http = self.collection().patch(self.name, &params, &patch);
        self.request(Verb::Create, "create", http)
    }

    /// Applies, bound to the observed object.
    pub(super) fn update(
        self,
        manager: &str,
        body: &Map<String, Value>,
        uid: &Uid,
        version: ResourceVersion,
    ) -> WriteRequest<'a> {
        let version = version.to_string();
        let bound = [("uid", &*uid.0), ("resourceVersion", &*version)];
        WriteRequest {
            verb: Verb::Update,
            ..self.apply(manager, &BoundObject::new(body, &bound))
        }
    }

    /// Applies, whether the object exists or not.
    pub(super) fn apply(self, manager: &str, body: &impl Serialize) -> WriteRequest<'a> {
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(body);
        let http = self.collection().patch(self.name, &params, &patch);
        self.request(Verb::Apply, "apply", http)
    }

    /// Applies the status, bound to the observed object.
    pub(super) fn status(
        self,
        manager: &str,
        body: &Map<String, Value>,
        uid: &Uid,
        version: ResourceVersion,
    ) -> WriteRequest<'a> {
        let version = version.to_string();
        let bound = [("uid", &*uid.0), ("resourceVersion", &*version)];
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(BoundObject::new(body, &bound));
        let http = self
            .collection()
            .patch_subresource("status", self.name, &params, &patch);
        self.request(Verb::Status, "apply the status of", http)
    }

    /// Changes by a JSON patch; `verb` names the effect.
    pub(super) fn json_patch(self, verb: &str, manager: &str, patch: &Value) -> WriteRequest<'a> {
        // The client's own JSON patches are types of another crate; here only the content type differs.
        let mut request = self.merge_patch(manager, patch);
        if let Ok(http) = &mut request.http {
            let json_patch = HeaderValue::from_static("application/json-patch+json");
            http.headers_mut().insert(CONTENT_TYPE, json_patch);
        }
        self.request(Verb::JsonPatch, verb, request.http)
    }

    /// Changes by a merge patch.
    pub(super) fn merge_patch(self, manager: &str, patch: &Value) -> WriteRequest<'a> {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        let http = self.collection().patch(self.name, &params, &patch);
        self.request(Verb::Update, "update", http)
    }

    /// Creates an object that is never applied again.
    pub(super) fn post(self, manager: &str, body: &Value) -> WriteRequest<'a> {
        // Only for such objects: the fields of a POST have an entry from which no apply of the manager removes any.
        let params = PostParams {
            field_manager: Some(manager.to_owned()),
            ..PostParams::default()
        };
        let body = body.to_string().into_bytes();
        let http = self.collection().create(&params, body);
        self.request(Verb::Create, "create", http)
    }

    /// Deletes the observed object in the foreground: it stays visible until its dependents are gone.
    pub(super) fn delete(self, uid: &Uid, version: ResourceVersion) -> WriteRequest<'a> {
        // Stated, because without a policy the API server orphans the Pods of a Job.
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                resource_version: Some(version.to_string()),
            }),
            ..DeleteParams::default()
        };
        let http = self.collection().delete(self.name, &params);
        self.request(Verb::Delete, "prune", http)
    }
}

/// An object whose write is bound to the observed one; only the metadata is copied.
struct BoundObject<'a> {
    body: &'a Map<String, Value>,
    /// The body's metadata, with the fields that bind it.
    metadata: Value,
}

impl<'a> BoundObject<'a> {
    fn new(body: &'a Map<String, Value>, bound: &[(&str, &str)]) -> Self {
        let mut metadata = body
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let bound = bound
            .iter()
            .map(|(field, value)| ((*field).to_owned(), (*value).into()));
        metadata.extend(bound);
        Self {
            body,
            metadata: metadata.into(),
        }
    }
}

impl Serialize for BoundObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let others = self
            .body
            .iter()
            .map(|(name, value)| (&**name, value))
            .filter(|(name, _)| *name != "metadata");
        serializer.collect_map(others.chain([("metadata", &self.metadata)]))
    }
}
