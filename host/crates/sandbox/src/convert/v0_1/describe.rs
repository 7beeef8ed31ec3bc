//! Converts descriptions in contract version 0.1.0; `manifest` checks the contents.

use innkeeper_model::{ChildKind, Gvk, Manifest, ParentKind, PluginName, ReadKind};

use super::{
    super::json::{self, Nulls},
    wit,
};
use crate::manifest::{self, Error};

pub(super) fn manifest(stated: wit::Manifest) -> Result<Manifest, Error> {
    // First, because each entry is parsed below.
    manifest::check_counts(
        &stated.parents,
        &stated.crds,
        &stated.children,
        &stated.reads,
    )?;
    let manifest = Manifest {
        name: PluginName::new(&stated.name)?,
        version: stated.version,
        parents: stated.parents.into_iter().map(parent).collect(),
        crds: stated
            .crds
            .iter()
            .enumerate()
            .map(|(index, text)| json::object(&format!("crds[{index}]"), text, Nulls::Refused))
            .collect::<Result<_, _>>()?,
        children: convert(stated.children, child)?,
        reads: convert(stated.reads, read)?,
        finalize: stated.finalize,
        reads_own_status: stated.reads_own_status,
        config_schema: stated
            .config_schema
            .as_deref()
            .map(super::super::config_schema)
            .transpose()?,
    };
    manifest::check(&manifest)?;
    Ok(manifest)
}

fn convert<T, U>(stated: Vec<T>, one: impl Fn(T) -> Result<U, Error>) -> Result<Vec<U>, Error> {
    stated.into_iter().map(one).collect()
}

fn parent(stated: wit::ParentKind) -> ParentKind {
    ParentKind {
        kind: Gvk::new(stated.group, stated.version, stated.kind),
        plural: stated.plural,
        scope: stated.scope.into(),
    }
}

fn child(stated: wit::ChildKind) -> Result<ChildKind, Error> {
    Ok(ChildKind {
        kind: manifest::kind(manifest::CHILDREN, &stated.api_version, &stated.kind)?,
        required: stated.required,
        ready_condition: stated.ready_condition,
        never_deleted: stated.never_deleted,
    })
}

fn read(stated: wit::ReadKind) -> Result<ReadKind, Error> {
    let kind = manifest::kind(manifest::READS, &stated.api_version, &stated.kind)?;
    Ok(ReadKind {
        label_selector: manifest::selector(&kind, stated.label_selector)?,
        kind,
        access: stated.access.into(),
        scope: stated.scope.into(),
    })
}
