//! The rules for plugin descriptions.
//!
//! `policy` decides on grants, and `plugin-controller` compares definitions with the installed ones.

use std::collections::BTreeSet;

use innkeeper_crd as crd;
use innkeeper_crd::config;
use innkeeper_model::{
    Gvk, InvalidApiVersion, InvalidPluginName, InvalidSelector, Manifest, Selector, parse_selector,
    syntax::{VERSION_CHARS_MAX, is_condition_type, is_dns_label, is_dns_subdomain, is_version},
};

// The longest lists: more than any known plugin needs, and few enough that the host can watch each entry's kind.
pub(super) const PARENTS_MAX: usize = 16;
pub(super) const CRDS_MAX: usize = 64;
pub(super) const CHILDREN_MAX: usize = 128;
pub(super) const READS_MAX: usize = 128;
// A description's lists, as errors name them.
pub(super) const PARENTS: &str = "parents";
pub(super) const CRDS: &str = "crds";
pub(super) const CHILDREN: &str = "children";
pub(super) const READS: &str = "reads";

/// A mistake in a description, for the plugin's author.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plugin's name has the problem in the cause.
    #[error("the name is not valid")]
    Name(#[from] InvalidPluginName),
    /// The version is missing, too long or has other characters.
    #[error(
        "\"{0}\" is not a version: use at most {VERSION_CHARS_MAX} letters, digits, dots, dashes, underscores and plus signs, starting and ending with a letter or digit"
    )]
    Version(
        /// The text's start.
        String,
    ),
    /// There is no parent.
    #[error("no kind of parent is named: a plugin without one would never run")]
    NoParent,
    /// A list is too long.
    #[error("there are {count} {part}, at most {max} are allowed")]
    TooMany {
        /// The list.
        part: &'static str,
        /// The list's length.
        count: usize,
        /// The longest allowed length.
        max: usize,
    },
    /// An `apiVersion` does not parse.
    #[error("one of the {part} has no valid apiVersion")]
    ApiVersion {
        /// The list.
        part: &'static str,
        /// The problem.
        #[source]
        source: InvalidApiVersion,
    },
    /// A group, version, kind or plural is empty or has wrong characters.
    #[error("one of the {part}, {kind}, has an invalid {field} \"{value}\"")]
    KindName {
        /// The list.
        part: &'static str,
        /// The kind.
        kind: Gvk,
        /// The field.
        field: &'static str,
        /// The text.
        value: String,
    },
    /// A label selector does not parse.
    #[error("the read of {kind} has no valid label selector")]
    Selector {
        /// The kind that is read.
        kind: Gvk,
        /// The problem.
        #[source]
        source: InvalidSelector,
    },
    /// A kind is named twice.
    #[error("{kind} is named twice in {part}")]
    Duplicate {
        /// The list.
        part: &'static str,
        /// The kind, or a CRD's name.
        kind: String,
    },
    /// A text is not JSON, or has another type.
    #[error("{at}: {problem}")]
    Json {
        /// The place.
        at: String,
        /// The problem.
        problem: String,
    },
    /// A CRD is not valid.
    #[error("crds[{index}] is not valid")]
    Crd {
        /// The place in the list.
        index: usize,
        /// The problem and the remedy.
        #[source]
        source: Box<crd::Refusal>,
    },
    /// The configuration's schema does not have the accepted form.
    #[error("the configuration's schema is not accepted")]
    ConfigSchema(#[from] config::Refusal),
}

/// Checks how long the lists are, before they are converted.
pub(super) fn check_counts<P, C, H, R>(
    parents: &[P],
    crds: &[C],
    children: &[H],
    reads: &[R],
) -> Result<(), Error> {
    for (part, count, max) in [
        (PARENTS, parents.len(), PARENTS_MAX),
        (CRDS, crds.len(), CRDS_MAX),
        (CHILDREN, children.len(), CHILDREN_MAX),
        (READS, reads.len(), READS_MAX),
    ] {
        if count > max {
            return Err(Error::TooMany { part, count, max });
        }
    }
    Ok(())
}

/// Checks a whole description. Compiles nothing: the configuration's schema is compiled in the confined process only.
pub fn check(manifest: &Manifest) -> Result<(), Error> {
    let Manifest {
        parents,
        crds,
        children,
        reads,
        ..
    } = manifest;
    check_counts(parents, crds, children, reads)?;
    check_names(
        &manifest.version,
        manifest.parents.iter().map(|parent| &parent.kind),
        manifest.children.iter().map(|child| &child.kind),
        manifest.reads.iter().map(|read| &read.kind),
    )?;
    for parent in &manifest.parents {
        if !is_dns_label(&parent.plural) {
            return Err(Error::KindName {
                part: PARENTS,
                kind: parent.kind.clone(),
                field: "plural",
                value: parent.plural.clone(),
            });
        }
    }
    for child in &manifest.children {
        if let Some(condition) = &child.ready_condition
            && !is_condition_type(condition)
        {
            return Err(Error::KindName {
                part: CHILDREN,
                kind: child.kind.clone(),
                field: "condition for readiness",
                value: condition.clone(),
            });
        }
    }
    check_crds(manifest)?;
    if let Some(schema) = &manifest.config_schema {
        // An executed description's text is checked before it is parsed; this is for all others.
        config::check_size(schema.to_string().len())?;
        config::check(schema)?;
    }
    Ok(())
}

/// Checks a description's version and kinds, which conditions show.
pub(super) fn check_names<'a>(
    version: &str,
    parents: impl ExactSizeIterator<Item = &'a Gvk>,
    children: impl Iterator<Item = &'a Gvk>,
    reads: impl Iterator<Item = &'a Gvk>,
) -> Result<(), Error> {
    if !is_version(version) {
        let start = version.chars().take(VERSION_CHARS_MAX);
        return Err(Error::Version(start.collect()));
    }
    if parents.len() == 0 {
        return Err(Error::NoParent);
    }
    check_kinds(PARENTS, parents)?;
    check_kinds(CHILDREN, children)?;
    for read in reads {
        check_kind(READS, read)?;
    }
    Ok(())
}

/// Parses a read's label selector; none selects all.
pub(super) fn selector(kind: &Gvk, text: Option<String>) -> Result<Selector, Error> {
    parse_selector(&text.unwrap_or_default()).map_err(|source| Error::Selector {
        kind: kind.clone(),
        source,
    })
}

/// Parses a kind in a description's list.
pub(super) fn kind(part: &'static str, api_version: &str, kind: &str) -> Result<Gvk, Error> {
    Gvk::parse(api_version, kind).map_err(|source| Error::ApiVersion { part, source })
}

/// Checks kinds that must be distinct.
fn check_kinds<'a>(part: &'static str, kinds: impl Iterator<Item = &'a Gvk>) -> Result<(), Error> {
    let mut distinct = BTreeSet::new();
    for kind in kinds {
        check_kind(part, kind)?;
        // Without the version: an object exists in all its kind's versions, so it would be watched and written twice.
        if !distinct.insert(kind.group_kind()) {
            return Err(Error::Duplicate {
                part,
                kind: kind.group_kind().to_string(),
            });
        }
    }
    Ok(())
}

pub(super) fn check_kind(part: &'static str, kind: &Gvk) -> Result<(), Error> {
    // The API server requires that a kind in lower case is a DNS label: at most 63 characters.
    let camel_case = kind.kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.kind.len() <= 63
        && kind.kind.bytes().all(|c| c.is_ascii_alphanumeric());
    let (field, value) = match () {
        () if !camel_case => ("kind", &kind.kind),
        () if !is_dns_label(&kind.version) => ("version", &kind.version),
        () if !kind.group.is_empty() && !is_dns_subdomain(&kind.group) => ("group", &kind.group),
        () => return Ok(()),
    };
    Err(Error::KindName {
        part,
        kind: kind.clone(),
        field,
        value: value.to_string(),
    })
}

fn check_crds(manifest: &Manifest) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for (index, crd) in manifest.crds.iter().enumerate() {
        crd::check(crd, &manifest.parents).map_err(|source| Error::Crd {
            index,
            source: Box::new(source),
        })?;
        let name = crd
            .get("metadata")
            .and_then(|metadata| metadata.get("name")?.as_str())
            .unwrap_or_default();
        if !names.insert(name) {
            return Err(Error::Duplicate {
                part: CRDS,
                kind: name.to_owned(),
            });
        }
    }
    Ok(())
}
