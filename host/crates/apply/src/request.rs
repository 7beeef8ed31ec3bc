//! Requests as the API server takes them.

use http::header::{CONTENT_TYPE, HeaderValue};
use innkeeper_model::{Resource, ResourceVersion, Uid};
use kube::{
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{self, request},
};
use serde_json::{Map, Value};

/// The type of a write, which decides the meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// An apply that only creates.
    Create,
    /// An apply that is bound to the observed version.
    Update,
    /// An apply that is bound to no version.
    Apply,
    /// An apply of the status, bound to the observed version.
    Status,
    /// A JSON patch with tests.
    JsonPatch,
    /// A deletion, bound to the observed version.
    Delete,
}

/// One write.
pub(super) struct WriteRequest {
    /// The type of the write.
    pub(super) verb: Verb,
    /// The write in words, as it reads after "failed to".
    pub(super) what: String,
    /// The request itself.
    pub(super) http: Result<http::Request<Vec<u8>>, request::Error>,
}

impl WriteRequest {
    /// Impersonates a user, so that the API server checks the permissions of that user.
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

/// One object as it is addressed.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    pub(super) resource: &'a Resource,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: &'a str,
}

impl Address<'_> {
    fn collection(self) -> core::Request {
        let Resource { kind, plural, .. } = self.resource;
        let root = match &*kind.group {
            "" => format!("/api/{}", kind.version),
            group => format!("/apis/{group}/{}", kind.version),
        };
        core::Request::new(match self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        })
    }

    fn what(self, verb: &str) -> String {
        let kind = &self.resource.kind;
        match self.namespace {
            Some(namespace) => format!("{verb} {kind} {namespace}/{}", self.name),
            None => format!("{verb} {kind} {}", self.name),
        }
    }

    /// Creates by server-side apply, and never merges into an existing object.
    pub(super) fn create(self, manager: &str, mut body: Map<String, Value>) -> WriteRequest {
        // The API server takes this version for one that no existing object can have.
        set_metadata(&mut body, "resourceVersion", "1");
        WriteRequest {
            verb: Verb::Create,
            what: self.what("create"),
            http: self.collection().patch(
                self.name,
                &PatchParams::apply(manager),
                &Patch::Apply(body),
            ),
        }
    }

    /// Applies, bound to the object that was observed.
    pub(super) fn update(
        self,
        manager: &str,
        mut body: Map<String, Value>,
        uid: &Uid,
        version: ResourceVersion,
    ) -> WriteRequest {
        bind(&mut body, uid, version);
        WriteRequest {
            verb: Verb::Update,
            ..self.apply(manager, body)
        }
    }

    /// Applies, whether the object exists or not.
    pub(super) fn apply(self, manager: &str, body: Map<String, Value>) -> WriteRequest {
        let params = PatchParams::apply(manager).force();
        WriteRequest {
            verb: Verb::Apply,
            what: self.what("apply"),
            http: self
                .collection()
                .patch(self.name, &params, &Patch::Apply(body)),
        }
    }

    /// Applies the status, bound to the object that was observed.
    pub(super) fn status(
        self,
        manager: &str,
        mut body: Map<String, Value>,
        uid: &Uid,
        version: ResourceVersion,
    ) -> WriteRequest {
        bind(&mut body, uid, version);
        let params = PatchParams::apply(manager).force();
        WriteRequest {
            verb: Verb::Status,
            what: self.what("apply the status of"),
            http: self.collection().patch_subresource(
                "status",
                self.name,
                &params,
                &Patch::Apply(body),
            ),
        }
    }

    /// Changes by a JSON patch; `verb` names the effect.
    pub(super) fn json_patch(self, verb: &str, manager: &str, patch: &Value) -> WriteRequest {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let http = self
            .collection()
            .patch(self.name, &params, &Patch::Merge(patch))
            .map(|mut http| {
                let json_patch = HeaderValue::from_static("application/json-patch+json");
                http.headers_mut().insert(CONTENT_TYPE, json_patch);
                http
            });
        WriteRequest {
            verb: Verb::JsonPatch,
            what: self.what(verb),
            http,
        }
    }

    /// Changes by a merge patch.
    pub(super) fn merge_patch(self, manager: &str, patch: &Value) -> WriteRequest {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        WriteRequest {
            verb: Verb::Update,
            what: self.what("update"),
            http: self
                .collection()
                .patch(self.name, &params, &Patch::Merge(patch)),
        }
    }

    /// Creates an object that is never applied again.
    pub(super) fn post(self, manager: &str, body: &Value) -> WriteRequest {
        let params = PostParams {
            field_manager: Some(manager.to_owned()),
            ..PostParams::default()
        };
        WriteRequest {
            verb: Verb::Create,
            what: self.what("create"),
            http: self
                .collection()
                .create(&params, body.to_string().into_bytes()),
        }
    }

    /// Deletes the object that was observed, and lets it be seen until all below it is gone.
    pub(super) fn delete(self, uid: &Uid, version: ResourceVersion) -> WriteRequest {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_string()),
                resource_version: Some(version.to_string()),
            }),
            ..DeleteParams::default()
        };
        WriteRequest {
            verb: Verb::Delete,
            what: self.what("prune"),
            http: self.collection().delete(self.name, &params),
        }
    }
}

fn bind(body: &mut Map<String, Value>, uid: &Uid, version: ResourceVersion) {
    set_metadata(body, "uid", &uid.0);
    set_metadata(body, "resourceVersion", &version.to_string());
}

fn set_metadata(body: &mut Map<String, Value>, field: &str, value: &str) {
    let metadata = body
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert(field.to_owned(), value.into());
    }
}
