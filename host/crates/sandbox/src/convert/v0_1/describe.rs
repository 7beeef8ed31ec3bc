//! A description of contract version 0.1.0, converted; `manifest` checks its contents.

use innkeeper_model::{
    Access, ChildKind, Gvk, Manifest, ParentKind, PluginName, ReadKind, ReadScope, Scope,
    parse_selector,
};
use serde_json::{Map, Value};

use super::{super::json, wit};
use crate::manifest::{self, Error, Part};

pub(super) fn manifest(stated: wit::Manifest) -> Result<Manifest, Error> {
    manifest::check_counts(
        stated.parents.len(),
        stated.crds.len(),
        stated.children.len(),
        stated.reads.len(),
    )?;
    let manifest = Manifest {
        name: PluginName::new(&stated.name).map_err(|source| Error::Name { source })?,
        version: stated.version,
        parents: stated.parents.into_iter().map(parent).collect(),
        crds: stated
            .crds
            .iter()
            .enumerate()
            .map(|(index, text)| crd(index, text))
            .collect::<Result<_, _>>()?,
        children: stated
            .children
            .into_iter()
            .map(child)
            .collect::<Result<_, _>>()?,
        reads: stated
            .reads
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()?,
        finalize: stated.finalize,
        config_schema: stated
            .config_schema
            .map(|text| config_schema(&text))
            .transpose()?,
    };
    manifest::check(&manifest)?;
    Ok(manifest)
}

fn parent(stated: wit::ParentKind) -> ParentKind {
    ParentKind {
        kind: Gvk::new(stated.group, stated.version, stated.kind),
        plural: stated.plural,
        scope: match stated.scope {
            wit::Scope::Namespaced => Scope::Namespaced,
            wit::Scope::Cluster => Scope::Cluster,
        },
    }
}

fn crd(index: usize, text: &str) -> Result<Map<String, Value>, Error> {
    json::object(&format!("crds[{index}]"), text).map_err(|rejected| Error::Json {
        at: rejected.at,
        problem: rejected.problem,
    })
}

fn config_schema(text: &str) -> Result<Value, Error> {
    json::value("config-schema", text).map_err(|rejected| Error::Json {
        at: rejected.at,
        problem: rejected.problem,
    })
}

fn child(stated: wit::ChildKind) -> Result<ChildKind, Error> {
    Ok(ChildKind {
        kind: kind(Part::Children, &stated.api_version, &stated.kind)?,
        required: stated.required,
        ready_condition: stated.ready_condition,
    })
}

fn read(stated: wit::ReadKind) -> Result<ReadKind, Error> {
    let kind = kind(Part::Reads, &stated.api_version, &stated.kind)?;
    let selector = parse_selector(&stated.label_selector.unwrap_or_default());
    Ok(ReadKind {
        label_selector: selector.map_err(|source| Error::Selector {
            kind: kind.clone(),
            source,
        })?,
        kind,
        access: match stated.access {
            wit::Access::Full => Access::Full,
            wit::Access::Metadata => Access::Metadata,
            wit::Access::Hash => Access::Hash,
        },
        scope: match stated.scope {
            wit::ReadScope::ParentNamespace => ReadScope::ParentNamespace,
            wit::ReadScope::Cluster => ReadScope::Cluster,
        },
    })
}

fn kind(part: Part, api_version: &str, kind: &str) -> Result<Gvk, Error> {
    Gvk::parse(api_version, kind).map_err(|source| Error::ApiVersion { part, source })
}
