//! The part of an embedded description that the host reads before it checks the grants.
//!
//! Anyone who may create a Plugin chooses this text, so reading it costs no more than its length: the fields that
//! grants answer are read into bounded lists, and everything else (definitions, the configuration's schema, unknown
//! fields) is skipped without being built. serde_json skips without recursion, at any depth.

use std::{fmt, marker::PhantomData};

use innkeeper_crd::config;
use innkeeper_model::{Access, GroupKind, Gvk, PluginName, ReadKind, ReadScope, Requests};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{BYTES_MAX, Embedded, embedded};
use crate::{
    convert,
    log::cut,
    manifest::{self, CHILDREN_MAX, CRDS_MAX, Error, PARENTS_MAX, READS_MAX},
};

/// The longest problem that is shown, in bytes; it may repeat text from the description.
const PROBLEM_BYTES_MAX: usize = 200;

/// A plugin's name and requests, from the embedded description.
///
/// Not trusted: it only decides if the component is compiled, whose executed description then has to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The plugin's name.
    pub name: PluginName,
    /// The plugin's own version.
    pub version: String,
    /// The requests that grants answer.
    pub requests: Requests,
}

/// Reads the preview; none if the component has no description.
///
/// # Errors
///
/// Fails if the description is there several times, exceeds a bound, or breaks a rule.
pub fn preview(component: &[u8]) -> Result<Option<Preview>, Error> {
    match embedded(component) {
        None => Ok(None),
        Some(Embedded::Text(text)) => read(&text).map(Some),
        Some(Embedded::Unusable) => Err(unreadable(&format!(
            "it is there several times, or has more than {BYTES_MAX} bytes"
        ))),
    }
}

/// Checks the form of the embedded configuration schema, and compiles nothing.
///
/// No grant would help a component whose schema is refused. A description that cannot be read passes: [`preview`] has
/// its problem.
///
/// # Errors
///
/// Fails with the path in the schema, the problem and the remedy.
pub fn check_schema(component: &[u8]) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow)]
        // A text, because its size is checked before it is parsed.
        config_schema: Option<&'a RawValue>,
    }

    let Some(Embedded::Text(text)) = embedded(component) else {
        return Ok(());
    };
    let Ok(Wire {
        config_schema: Some(schema),
    }) = serde_json::from_slice(&text)
    else {
        return Ok(());
    };
    config::check(&convert::config_schema(schema.get())?)?;
    Ok(())
}

fn read(text: &[u8]) -> Result<Preview, Error> {
    let Wire {
        name,
        version,
        parents,
        crds,
        children,
        reads,
    } = serde_json::from_slice(text).map_err(|error| unreadable(&error.to_string()))?;
    let parents = parents.0;
    let children: Vec<(Gvk, bool)> = children
        .0
        .into_iter()
        .map(ChildEntry::into_kind)
        .collect::<Result<_, _>>()?;
    let reads: Vec<ReadKind> = reads
        .0
        .into_iter()
        .map(ReadEntry::into_kind)
        .collect::<Result<_, _>>()?;
    manifest::check_names(
        &version,
        parents.iter(),
        children.iter().map(|(kind, _)| kind),
        reads.iter().map(|read| &read.kind),
    )?;
    Ok(Preview {
        name,
        version,
        requests: Requests {
            parents: parents.iter().map(Gvk::group_kind).collect(),
            crds: crds
                .0
                .into_iter()
                .map(DefinitionEntry::into_kind)
                .collect::<Result<_, _>>()?,
            children: children
                .into_iter()
                .map(|(kind, required)| (kind.group_kind(), required))
                .collect(),
            reads,
        },
    })
}

fn unreadable(problem: &str) -> Error {
    Error::Json {
        at: "the embedded description".to_owned(),
        problem: format!(
            "{}: build the component again with innkeeper build",
            // The parser quotes a stranger's text in its problems.
            cut(problem, PROBLEM_BYTES_MAX).escape_debug()
        ),
    }
}

/// The fields that are read. A missing field is a mistake, as in the whole description.
#[derive(Deserialize)]
struct Wire {
    name: PluginName,
    version: String,
    parents: Bounded<Gvk, PARENTS_MAX>,
    crds: Bounded<DefinitionEntry, CRDS_MAX>,
    children: Bounded<ChildEntry, CHILDREN_MAX>,
    reads: Bounded<ReadEntry, READS_MAX>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChildEntry {
    api_version: String,
    kind: String,
    required: bool,
}

impl ChildEntry {
    fn into_kind(self) -> Result<(Gvk, bool), Error> {
        let kind = manifest::kind(manifest::CHILDREN, &self.api_version, &self.kind)?;
        Ok((kind, self.required))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadEntry {
    api_version: String,
    kind: String,
    access: Access,
    scope: ReadScope,
    /// None, `null` in a description, selects all.
    label_selector: Option<String>,
}

impl ReadEntry {
    fn into_kind(self) -> Result<ReadKind, Error> {
        let kind = manifest::kind(manifest::READS, &self.api_version, &self.kind)?;
        Ok(ReadKind {
            label_selector: manifest::selector(&kind, self.label_selector)?,
            kind,
            access: self.access,
            scope: self.scope,
        })
    }
}

/// A definition; only the kind counts.
#[derive(Deserialize)]
struct DefinitionEntry {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
}

#[derive(Deserialize)]
struct DefinitionNames {
    kind: String,
}

impl DefinitionEntry {
    fn into_kind(self) -> Result<GroupKind, Error> {
        let DefinitionSpec { group, names } = self.spec;
        // Grants have no version.
        let kind = Gvk::new(group, "v1", names.kind);
        manifest::check_kind(manifest::CRDS, &kind)?;
        Ok(kind.group_kind())
    }
}

/// A list that is refused at the first entry beyond the bound.
struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_seq(BoundedVisitor::<T, MAX>(PhantomData))
            .map(Self)
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            let Some(item) = access.next_element()? else {
                return Ok(items);
            };
            items.push(item);
        }
        // Skipped and not built: it only shows that the list is too long.
        match access.next_element::<serde::de::IgnoredAny>()? {
            None => Ok(items),
            Some(_) => Err(A::Error::custom(format!(
                "a list has more than {MAX} entries"
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
