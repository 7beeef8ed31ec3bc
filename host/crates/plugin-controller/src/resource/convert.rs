//! Converts a spec for the rest of the host: checks every rule again, and fills in every default.
//!
//! A spec that was stored under an older definition must pass this host's rules.

use std::{sync::LazyLock, time::Duration};

use innkeeper_crd::{self as schema, Admitted, RejectionCause, Schema};
use innkeeper_model::{
    Access, Digest, Limits, PluginName, ReadScope, Selector, is_valid_selector, parse_selector,
};
use innkeeper_policy::{
    ChildGrant, CrdGrant, Grants, ParentGrant, PodSecurity, ReadGrant, Selection,
};
use innkeeper_source::{PublicKey, Reference};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{
    ConfigMapSource, Error, FileSource, GrantsSpec, HttpSource, Identity, LimitsSpec, OciSource,
    ParentsSpec, Plugin, PodSecurityLevel, ReadAccess, ReadForm, ReadPlace, RolloutSpec,
    SourceSpec, Terms, crd,
    forms::{bytes, duration_text, size_text, time},
    number,
    source::{PULL_INTERVAL_DEFAULT, PullPolicy},
};

/// This host's rules, compiled.
static SCHEMA: LazyLock<Result<Schema, schema::Error>> =
    LazyLock::new(|| Schema::new(&crd(), "v1alpha1"));

/// A Plugin resource's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The plugin's name.
    pub name: PluginName,
    /// The resource's creation time, which decides the priority between Plugins.
    pub created: Timestamp,
    /// The component's source.
    pub origin: Origin,
    /// The pull interval; none: pull only when the spec changes.
    pub pull_every: Option<Duration>,
    /// The required digest for the bytes.
    pub digest: Option<Digest>,
    /// Public keys, one of which must have signed; none: signatures are not checked.
    pub keys: Vec<PublicKey>,
    /// The identity that the signed component must have.
    pub identity: Identity,
    /// The plugin's configuration.
    pub config: Map<String, Value>,
    /// The terms under which it is served.
    pub terms: Terms,
    /// The rollout settings.
    pub rollout: RolloutSpec,
}

/// A component's source, with valid fields. Secrets and ConfigMaps are in the host's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An OCI registry.
    Oci(OciSource, Reference),
    /// A web server.
    Http(HttpSource),
    /// A ConfigMap.
    ConfigMap(ConfigMapSource),
    /// A file below the source directory; the path is relative and without `..`.
    File(FileSource),
}

impl Plugin {
    /// Returns the resource's declaration.
    ///
    /// # Errors
    ///
    /// All rules that the spec breaks, or the first unusable field, with the remedy.
    pub fn declared(&self) -> Result<Declared, Error> {
        let spec = &self.spec;
        // Never fails: a spec is plain data.
        let json = serde_json::to_value(spec).unwrap_or_default();
        admit(&self.name_any(), &json)?.map_err(|causes| {
            let causes: Vec<String> = causes.iter().map(ToString::to_string).collect();
            Error::field("the Plugin", format!("breaks rules: {}", causes.join("; ")))
        })?;
        let name = PluginName::new(&self.name_any())
            .map_err(|error| Error::field("metadata.name", error.to_string()))?;
        let grants = spec.grants.clone().unwrap_or_default();
        let own_manager = || name.field_manager();
        let terms = Terms {
            grants: grants.grants("spec.grants")?,
            limits: spec.limits.limits().ok_or_else(|| unread("spec.limits"))?,
            parents: selection(spec.parents.as_ref(), "spec.parents")?,
            field_manager: spec.field_manager.clone().unwrap_or_else(own_manager),
            service_account: grants.service_account_ref,
            crds: spec.crds,
            suspend: spec.suspend,
        };
        let keys = spec
            .verify
            .iter()
            .flat_map(|verify| &verify.keys)
            .enumerate()
            .map(|(index, text)| {
                let unusable = |error| {
                    let path = format!("spec.verify.keys[{index}]");
                    Error::field(path, format!("cannot be used: {error}"))
                };
                PublicKey::from_pem(text).map_err(unusable)
            });
        let digest = spec.digest.as_ref().map(|text| text.parse::<Digest>());
        let created = self.metadata.creation_timestamp.as_ref();
        let origin = spec.source.origin();
        Ok(Declared {
            // The API server sets it on every object, so it lacks only in a file.
            created: created.map_or(Timestamp::MAX, |created| created.0),
            origin: origin.ok_or_else(|| unread("spec.source"))?,
            pull_every: spec.source.pull_every(),
            digest: digest.transpose().map_err(|_| unread("spec.digest"))?,
            keys: keys.collect::<Result<_, _>>()?,
            identity: spec.verify.as_ref().map_or_else(
                || Ok(Identity::default()),
                |verify| verify.identity("spec.verify"),
            )?,
            config: spec.config.clone(),
            terms,
            rollout: spec.rollout.clone(),
            name,
        })
    }
}

/// Admits a Plugin with this spec as the API server does, by this host's rules; or returns the broken rules.
pub(super) fn admit(
    name: &str,
    spec: &Value,
) -> Result<Result<Admitted, Vec<RejectionCause>>, Error> {
    let schema = SCHEMA.as_ref().map_err(Error::Definition)?;
    let object = json!({
        "apiVersion": "innkeeper.dev/v1alpha1",
        "kind": "Plugin",
        "metadata": {"name": name},
        "spec": spec,
    });
    let members = object.as_object().cloned().unwrap_or_default();
    let admitted = schema.admit(members);
    Ok(admitted.map_err(|rejection| rejection.causes().to_vec()))
}

/// The error for a field that passes all rules but cannot be read: a bug in the host.
fn unread(path: &str) -> Error {
    Error::field(path, "cannot be read")
}

fn selection(spec: Option<&ParentsSpec>, path: &str) -> Result<Selection, Error> {
    let Some(spec) = spec else {
        return Ok(Selection::default());
    };
    let read = |selector: &Option<meta::LabelSelector>, name: &str| {
        Selector::try_from(selector.clone().unwrap_or_default())
            .ok()
            .filter(is_valid_selector)
            .ok_or_else(|| {
                let problem = "must be a label selector with at most 64 requirements and 4096 bytes: \
                               matchLabels, and matchExpressions with the operators In and NotIn with \
                               values, Exists and DoesNotExist without";
                Error::field(format!("{path}.{name}"), problem)
            })
    };
    Ok(Selection {
        namespaces: read(&spec.namespace_selector, "namespaceSelector")?,
        parents: read(&spec.label_selector, "labelSelector")?,
    })
}

impl SourceSpec {
    fn origin(&self) -> Option<Origin> {
        match (&self.oci, &self.http, &self.config_map, &self.file) {
            (Some(oci), ..) => Some(Origin::Oci(oci.clone(), oci.reference.parse().ok()?)),
            (_, Some(http), ..) => Some(Origin::Http(http.clone())),
            (_, _, Some(config_map), _) => Some(Origin::ConfigMap(config_map.clone())),
            (.., file) => file.clone().map(Origin::File),
        }
    }

    fn pull_every(&self) -> Option<Duration> {
        let interval = self.pull_interval.as_deref();
        match self.pull_policy {
            PullPolicy::IfNotPresent => None,
            PullPolicy::Always => time(interval.unwrap_or(PULL_INTERVAL_DEFAULT)),
        }
    }
}

impl LimitsSpec {
    /// Returns the spec for these limits; a number above its field's range becomes the maximum.
    pub fn from_limits(limits: &Limits) -> Self {
        Self {
            memory: size_text(limits.memory_bytes_max),
            deadline: duration_text(limits.deadline),
            output: size_text(limits.output_bytes_max),
            object: size_text(limits.object_bytes_max),
            children: number(limits.children_max),
            logs: size_text(limits.log_bytes_max),
            logs_per_second: size_text(limits.log_bytes_per_second_max),
            host_calls: number(limits.host_calls_max),
            host_call_bytes: size_text(limits.host_call_bytes_max),
            concurrency: number(limits.concurrency_max),
            passes_per_second: number(limits.passes_per_second_max),
            writes_per_minute: number(limits.writes_per_minute_max),
            writes_per_second: number(limits.writes_per_second_max),
            objects_per_namespace: number(limits.namespace_objects_max),
            nested_parents_per_namespace: number(limits.namespace_nested_max),
            bytes_per_namespace: size_text(limits.namespace_bytes_max),
            retained: number(limits.retained_max),
        }
    }

    fn limits(&self) -> Option<Limits> {
        Some(Limits {
            memory_bytes_max: bytes(&self.memory)?,
            deadline: time(&self.deadline)?,
            output_bytes_max: bytes(&self.output)?,
            object_bytes_max: bytes(&self.object)?,
            children_max: self.children.try_into().ok()?,
            log_bytes_max: bytes(&self.logs)?,
            log_bytes_per_second_max: bytes(&self.logs_per_second)?,
            host_calls_max: self.host_calls.try_into().ok()?,
            host_call_bytes_max: bytes(&self.host_call_bytes)?,
            concurrency_max: self.concurrency.try_into().ok()?,
            passes_per_second_max: self.passes_per_second.try_into().ok()?,
            writes_per_minute_max: self.writes_per_minute.try_into().ok()?,
            writes_per_second_max: self.writes_per_second.try_into().ok()?,
            namespace_objects_max: self.objects_per_namespace.try_into().ok()?,
            namespace_nested_max: self.nested_parents_per_namespace.try_into().ok()?,
            namespace_bytes_max: bytes(&self.bytes_per_namespace)?,
            retained_max: self.retained.try_into().ok()?,
        })
    }
}

impl GrantsSpec {
    /// Converts the grants for the rest of the host.
    pub(super) fn grants(&self, path: &str) -> Result<Grants, Error> {
        let parents = self.parents.iter().map(|parent| {
            let grant = ParentGrant {
                built_in: parent.builtin,
                privileged: parent.privileged,
            };
            (parent.group_kind(), grant)
        });
        let crds = self.crds.iter().map(|crd| {
            let privileged = crd.privileged;
            (crd.group_kind(), CrdGrant { privileged })
        });
        let children = self.children.iter().map(|child| {
            let grant = ChildGrant {
                adopt: child.adopt,
                // The rules refuse a negative number.
                depth: child.depth.try_into().unwrap_or_default(),
                privileged: child.privileged,
            };
            (child.group_kind(), grant)
        });
        let reads = self
            .reads
            .iter()
            .enumerate()
            .map(|(index, read)| read.grant(&format!("{path}.reads[{index}]")));
        Ok(Grants {
            parents: parents.collect(),
            crds: crds.collect(),
            children: children.collect(),
            reads: reads.collect::<Result<_, _>>()?,
            pod_security: match self.pod_security {
                PodSecurityLevel::Restricted => PodSecurity::Restricted,
                PodSecurityLevel::Baseline => PodSecurity::Baseline,
                PodSecurityLevel::Privileged => PodSecurity::Privileged,
            },
            service_accounts: self.service_accounts.iter().cloned().collect(),
            system_namespaces: self.system_namespaces.iter().cloned().collect(),
            // These two restrict plugin files without grants.
            beyond_parent_namespace: true,
            own_definitions: false,
        })
    }
}

impl ReadAccess {
    fn grant(&self, path: &str) -> Result<ReadGrant, Error> {
        let label_selector = parse_selector(self.label_selector.as_deref().unwrap_or_default())
            .map_err(|error| Error::field(format!("{path}.labelSelector"), format!("{error}")))?;
        Ok(ReadGrant {
            kind: self.group_kind(),
            access: match self.access {
                ReadForm::Full => Access::Full,
                ReadForm::Metadata => Access::Metadata,
                ReadForm::Hash => Access::Hash,
            },
            scope: match self.scope {
                ReadPlace::ParentNamespace => ReadScope::ParentNamespace,
                ReadPlace::Cluster => ReadScope::Cluster,
                ReadPlace::Namespaces => ReadScope::Namespaces(
                    self.namespaces
                        .iter()
                        .map(|name| (&**name).into())
                        .collect(),
                ),
            },
            label_selector,
            privileged: self.privileged,
        })
    }
}
