//! The conversion of a spec for the rest of the host: it fills in every default and checks every rule again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use innkeeper_model::{
    Access, Digest, GroupKind, Limits, PluginName, ReadScope, Selector, is_valid_selector,
    parse_selector,
};
use innkeeper_policy::{
    ChildGrant, CrdGrant, Grants, ParentGrant, PodSecurity, ReadGrant, Selection, is_built_in,
    is_privileged, is_secret,
};
use innkeeper_source::{PublicKey, Reference};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1 as meta, util::intstr::IntOrString};
use kube::ResourceExt;
use serde_json::{Map, Value};

use super::{
    ConfigMapSource, Error, FileSource, GrantsSpec, HttpSource, Identity, LimitsSpec, LocalRef,
    OciSource, ParentsSpec, Plugin, PodSecurityLevel, PruneBudget, ReadAccess, ReadForm, ReadPlace,
    Rollout, RolloutSpec, ServiceAccountRef, SourceSpec, Terms, VerifySpec,
    access::DEPTH,
    forms::{
        DATA_KEY, DIGEST, FIELD_MANAGER, GROUP, KIND, NAME, NAMESPACE, PATH, PERCENTAGE,
        PUBLIC_KEY, REFERENCE, RESERVED_MANAGER, REVISION, TextForm, URL,
    },
    options::{
        BYTES_PER_NAMESPACE, CHILDREN, CONCURRENCY, DEADLINE, HOST_CALL_BYTES, HOST_CALLS, LOGS,
        LOGS_PER_SECOND, MEMORY, OBJECT, OBJECTS_PER_NAMESPACE, OUTPUT, PASSES_PER_SECOND,
        RETAINED, WRITES_PER_MINUTE, WRITES_PER_SECOND,
    },
    source::{PULL_INTERVAL, PULL_INTERVAL_DEFAULT, PullPolicy},
};

/// The longest name of a field manager that the API server accepts.
const FIELD_MANAGER_CHARS_MAX: usize = 128;

/// The declaration of a Plugin resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The plugin's name.
    pub name: PluginName,
    /// The creation time of the resource, which decides the priority between Plugins.
    pub created: Timestamp,
    /// The source of its component.
    pub origin: Origin,
    /// The interval of pulls; none: only when the spec changes.
    pub pull_every: Option<Duration>,
    /// The required digest of the bytes.
    pub digest: Option<Digest>,
    /// The public keys of which one must have signed; none: signatures are not checked.
    pub keys: Vec<PublicKey>,
    /// The identity that the signed component must have.
    pub identity: Identity,
    /// The plugin's configuration.
    pub config: Map<String, Value>,
    /// The terms under which it is served.
    pub terms: Terms,
    /// The replacement of the active revision by a new one.
    pub rollout: Rollout,
}

/// The source of a component, with valid fields. Secrets and ConfigMaps are those of the host's namespace.
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
    /// Returns the declaration of the resource.
    ///
    /// # Errors
    ///
    /// The first rule that the spec breaks, with the path of the field and the remedy.
    pub fn declared(&self) -> Result<Declared, Error> {
        let spec = &self.spec;
        let name = PluginName::new(&self.name_any())
            .map_err(|error| Error::field("metadata.name", error.to_string()))?;
        let digest = spec.digest.as_deref();
        let digest = digest.map(|text| read_digest("spec.digest", text));
        let keys = spec.verify.as_ref();
        let keys = keys.map(|verify| verify.keys("spec.verify.keys"));
        let field_manager = match &spec.field_manager {
            Some(given) => field_manager("spec.fieldManager", given)?,
            None => name.field_manager(),
        };
        let given = spec.grants.clone().unwrap_or_default();
        let terms = Terms {
            grants: given.grants("spec.grants")?,
            limits: spec.limits.limits("spec.limits")?,
            parents: selection(spec.parents.as_ref(), "spec.parents")?,
            field_manager,
            service_account: given.service_account("spec.grants.serviceAccountRef")?,
            crds: spec.crds,
            suspend: spec.suspend,
        };
        let created = self.metadata.creation_timestamp.as_ref();
        Ok(Declared {
            // The API server sets it on every object, so it lacks only in a file.
            created: created.map_or(Timestamp::MAX, |created| created.0),
            origin: spec.source.origin("spec.source")?,
            pull_every: spec.source.pull_every("spec.source")?,
            digest: digest.transpose()?,
            keys: keys.transpose()?.unwrap_or_default(),
            identity: spec.verify.as_ref().map_or_else(
                || Ok(Identity::default()),
                |verify| verify.identity("spec.verify"),
            )?,
            config: spec.config.clone(),
            terms,
            rollout: spec.rollout.rollout("spec.rollout")?,
            name,
        })
    }
}

fn read_digest(path: &str, text: &str) -> Result<Digest, Error> {
    DIGEST.check(path, text)?;
    text.parse().map_err(|_| Error::field(path, DIGEST.must()))
}

fn field_manager(path: &str, given: &str) -> Result<String, Error> {
    FIELD_MANAGER.check(path, given)?;
    if given.len() > FIELD_MANAGER_CHARS_MAX {
        let problem = format!("must be at most {FIELD_MANAGER_CHARS_MAX} characters long");
        return Err(Error::field(path, problem));
    }
    if given.starts_with(RESERVED_MANAGER) {
        let problem = format!("must not begin with {RESERVED_MANAGER}, which is the host's own");
        return Err(Error::field(path, problem));
    }
    Ok(given.to_owned())
}

fn selection(spec: Option<&ParentsSpec>, path: &str) -> Result<Selection, Error> {
    let Some(spec) = spec else {
        return Ok(Selection::default());
    };
    let read = |selector: &Option<meta::LabelSelector>, name: &str| {
        let selector = Selector::try_from(selector.clone().unwrap_or_default()).ok();
        selector.filter(is_valid_selector).ok_or_else(|| {
            let problem = "must be a label selector: matchLabels, and matchExpressions with the \
                           operators In and NotIn with values, Exists and DoesNotExist without";
            Error::field(format!("{path}.{name}"), problem)
        })
    };
    Ok(Selection {
        namespaces: read(&spec.namespace_selector, "namespaceSelector")?,
        parents: read(&spec.label_selector, "labelSelector")?,
    })
}

impl VerifySpec {
    fn keys(&self, path: &str) -> Result<Vec<PublicKey>, Error> {
        if self.keys.is_empty() {
            return Err(Error::field(path, "must hold a public key"));
        }
        let keys = self.keys.iter().enumerate();
        keys.map(|(index, text)| {
            let path = format!("{path}[{index}]");
            PUBLIC_KEY.check(&path, text)?;
            PublicKey::from_pem(text)
                .map_err(|error| Error::field(path, format!("cannot be used: {error}")))
        })
        .collect()
    }
}

impl SourceSpec {
    fn origin(&self, path: &str) -> Result<Origin, Error> {
        let check_secret = |field: &str, secret: Option<&LocalRef>| match secret {
            Some(secret) => NAME.check(&format!("{path}.{field}.name"), &secret.name),
            None => Ok(()),
        };
        match (&self.oci, &self.http, &self.config_map, &self.file) {
            (Some(oci), None, None, None) => {
                let at = format!("{path}.oci.reference");
                REFERENCE.check(&at, &oci.reference)?;
                let reference = oci.reference.parse();
                let reference = reference.map_err(|_| Error::field(at, REFERENCE.must()))?;
                check_secret("oci.pullSecretRef", oci.pull_secret_ref.as_ref())?;
                Ok(Origin::Oci(oci.clone(), reference))
            }
            (None, Some(http), None, None) => {
                URL.check(&format!("{path}.http.url"), &http.url)?;
                check_secret("http.secretRef", http.secret_ref.as_ref())?;
                Ok(Origin::Http(http.clone()))
            }
            (None, None, Some(config_map), None) => {
                NAME.check(&format!("{path}.configMap.name"), &config_map.name)?;
                DATA_KEY.check(&format!("{path}.configMap.key"), &config_map.key)?;
                Ok(Origin::ConfigMap(config_map.clone()))
            }
            (None, None, None, Some(file)) => {
                PATH.check(&format!("{path}.file.path"), &file.path)?;
                Ok(Origin::File(file.clone()))
            }
            _ => Err(Error::field(
                path,
                "must have exactly one of oci, http, configMap and file",
            )),
        }
    }

    fn pull_every(&self, path: &str) -> Result<Option<Duration>, Error> {
        let path = format!("{path}.pullInterval");
        match (self.pull_policy, self.pull_interval.as_deref()) {
            (PullPolicy::IfNotPresent, None) => Ok(None),
            (PullPolicy::IfNotPresent, Some(_)) => {
                Err(Error::field(path, "needs pullPolicy: Always"))
            }
            (PullPolicy::Always, given) => {
                let text = given.unwrap_or(PULL_INTERVAL_DEFAULT);
                PULL_INTERVAL.time(&path, text).map(Some)
            }
        }
    }
}

impl LimitsSpec {
    fn limits(&self, path: &str) -> Result<Limits, Error> {
        let at = |field: &str| format!("{path}.{field}");
        Ok(Limits {
            memory_bytes_max: MEMORY.bytes(&at("memory"), &self.memory)?,
            deadline: DEADLINE.time(&at("deadline"), &self.deadline)?,
            output_bytes_max: OUTPUT.bytes(&at("output"), &self.output)?,
            object_bytes_max: OBJECT.bytes(&at("object"), &self.object)?,
            children_max: CHILDREN.read(&at("children"), self.children)?,
            log_bytes_max: LOGS.bytes(&at("logs"), &self.logs)?,
            log_bytes_per_second_max: LOGS_PER_SECOND
                .bytes(&at("logsPerSecond"), &self.logs_per_second)?,
            host_calls_max: HOST_CALLS.read(&at("hostCalls"), self.host_calls)?,
            host_call_bytes_max: HOST_CALL_BYTES
                .bytes(&at("hostCallBytes"), &self.host_call_bytes)?,
            concurrency_max: CONCURRENCY.read(&at("concurrency"), self.concurrency)?,
            passes_per_second_max: PASSES_PER_SECOND
                .read(&at("passesPerSecond"), self.passes_per_second)?,
            writes_per_minute_max: WRITES_PER_MINUTE
                .read(&at("writesPerMinute"), self.writes_per_minute)?,
            writes_per_second_max: WRITES_PER_SECOND
                .read(&at("writesPerSecond"), self.writes_per_second)?,
            namespace_objects_max: OBJECTS_PER_NAMESPACE
                .read(&at("objectsPerNamespace"), self.objects_per_namespace)?,
            namespace_bytes_max: BYTES_PER_NAMESPACE
                .bytes(&at("bytesPerNamespace"), &self.bytes_per_namespace)?,
            retained_max: RETAINED.read(&at("retained"), self.retained)?,
        })
    }
}

impl RolloutSpec {
    fn rollout(&self, path: &str) -> Result<Rollout, Error> {
        let at = |field: &str| format!("{path}.{field}");
        if let Some(revision) = &self.approve {
            REVISION.check(&at("approve"), revision)?;
        }
        let prunes = match &self.max_prunes {
            IntOrString::Int(count) => usize::try_from(*count).ok().map(PruneBudget::Count),
            IntOrString::String(text) => {
                PERCENTAGE.check(&at("maxPrunes"), text)?;
                let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
                percent.map(PruneBudget::Percent)
            }
        };
        Ok(Rollout {
            mode: self.mode,
            auto_rollback: self.auto_rollback,
            prunes: prunes.ok_or_else(|| Error::field(at("maxPrunes"), PERCENTAGE.must()))?,
            approved: self.approve.clone(),
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
            (&parent.group, &parent.kind, parent.privileged, grant)
        });
        let crds = self.crds.iter().map(|crd| {
            let privileged = crd.privileged;
            (&crd.group, &crd.kind, privileged, CrdGrant { privileged })
        });
        for (index, child) in self.children.iter().enumerate() {
            DEPTH.read::<u32>(&format!("{path}.children[{index}].depth"), child.depth)?;
        }
        let children = self.children.iter().map(|child| {
            let grant = ChildGrant {
                adopt: child.adopt,
                depth: child.depth.try_into().unwrap_or_default(),
                privileged: child.privileged,
            };
            (&child.group, &child.kind, child.privileged, grant)
        });
        let reads = self.reads.iter().enumerate();
        let reads = reads.map(|(index, read)| read.grant(&format!("{path}.reads[{index}]")));
        Ok(Grants {
            parents: by_kind(&format!("{path}.parents"), parents, |kind, grant| {
                if is_secret(kind) {
                    Some("which is never a parent")
                } else {
                    (is_built_in(kind) && !grant.built_in)
                        .then_some("which is part of Kubernetes: write builtin: true")
                }
            })?,
            crds: by_kind(&format!("{path}.crds"), crds, |kind, _| {
                is_built_in(kind).then_some("which is part of Kubernetes and has no definition")
            })?,
            children: by_kind(&format!("{path}.children"), children, |_, _| None)?,
            reads: reads.collect::<Result<_, _>>()?,
            pod_security: match self.pod_security {
                PodSecurityLevel::Restricted => PodSecurity::Restricted,
                PodSecurityLevel::Baseline => PodSecurity::Baseline,
                PodSecurityLevel::Privileged => PodSecurity::Privileged,
            },
            service_accounts: names(
                &format!("{path}.serviceAccounts"),
                &self.service_accounts,
                &NAME,
            )?,
            system_namespaces: names(
                &format!("{path}.systemNamespaces"),
                &self.system_namespaces,
                &NAMESPACE,
            )?,
            beyond_parent_namespace: true,
        })
    }

    fn service_account(&self, path: &str) -> Result<Option<ServiceAccountRef>, Error> {
        if let Some(account) = &self.service_account_ref {
            NAMESPACE.check(&format!("{path}.namespace"), &account.namespace)?;
            NAME.check(&format!("{path}.name"), &account.name)?;
        }
        Ok(self.service_account_ref.clone())
    }
}

impl ReadAccess {
    fn grant(&self, path: &str) -> Result<ReadGrant, Error> {
        let kind = group_kind(path, &self.group, &self.kind, self.privileged)?;
        let hashable = self.group.is_empty() && ["Secret", "ConfigMap"].contains(&&*self.kind);
        let access = match self.access {
            ReadForm::Full => Access::Full,
            ReadForm::Metadata => Access::Metadata,
            ReadForm::Hash if hashable => Access::Hash,
            ReadForm::Hash => {
                let problem = "must be full or metadata: hash is for Secrets and ConfigMaps";
                return Err(Error::field(format!("{path}.access"), problem));
            }
        };
        let at_namespaces = format!("{path}.namespaces");
        names(&at_namespaces, &self.namespaces, &NAMESPACE)?;
        let scope = match (self.scope, self.namespaces.is_empty()) {
            (ReadPlace::ParentNamespace, true) => ReadScope::ParentNamespace,
            (ReadPlace::Cluster, true) => ReadScope::Cluster,
            (ReadPlace::Namespaces, false) => {
                let names = self.namespaces.iter();
                ReadScope::Namespaces(names.map(|name| Arc::from(name.as_str())).collect())
            }
            (ReadPlace::Namespaces, true) => {
                let problem = "must name at least one namespace for scope: Namespaces";
                return Err(Error::field(at_namespaces, problem));
            }
            (ReadPlace::ParentNamespace | ReadPlace::Cluster, false) => {
                let problem = "are for scope: Namespaces only";
                return Err(Error::field(at_namespaces, problem));
            }
        };
        let label_selector = parse_selector(self.label_selector.as_deref().unwrap_or_default())
            .map_err(|error| Error::field(format!("{path}.labelSelector"), format!("{error}")))?;
        Ok(ReadGrant {
            kind,
            access,
            scope,
            label_selector,
            privileged: self.privileged,
        })
    }
}

/// Checks the form of names.
fn names(path: &str, names: &[String], form: &TextForm) -> Result<BTreeSet<String>, Error> {
    for (index, name) in names.iter().enumerate() {
        form.check(&format!("{path}[{index}]"), name)?;
    }
    Ok(names.iter().cloned().collect())
}

/// Returns grants by kind, at most one for each; `problem` is the reason why there can be no such grant.
fn by_kind<'a, T>(
    path: &str,
    entries: impl Iterator<Item = (&'a String, &'a String, bool, T)>,
    problem: impl Fn(&GroupKind, &T) -> Option<&'static str>,
) -> Result<BTreeMap<GroupKind, T>, Error> {
    let mut grants = BTreeMap::new();
    for (index, (group, kind, privileged, grant)) in entries.enumerate() {
        let path = format!("{path}[{index}]");
        let kind = group_kind(&path, group, kind, privileged)?;
        if let Some(problem) = problem(&kind, &grant) {
            return Err(Error::field(path, format!("names {kind}, {problem}")));
        }
        if grants.insert(kind.clone(), grant).is_some() {
            let problem = format!("names {kind} again: write one entry for it");
            return Err(Error::field(path, problem));
        }
    }
    Ok(grants)
}

fn group_kind(path: &str, group: &str, kind: &str, privileged: bool) -> Result<GroupKind, Error> {
    GROUP.check(&format!("{path}.group"), group)?;
    KIND.check(&format!("{path}.kind"), kind)?;
    let kind = GroupKind::new(group, kind);
    if is_privileged(&kind) && !privileged {
        let problem =
            format!("names {kind}, which gives power over the cluster: write privileged: true");
        return Err(Error::field(path, problem));
    }
    Ok(kind)
}
