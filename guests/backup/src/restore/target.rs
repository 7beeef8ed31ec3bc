//! The databases into which dumps are restored.

use serde_json::Value;

use crate::{
    api::{Kind, Parent},
    references::Source,
    stop::Stop,
};

/// A database into which a dump is restored.
pub(super) struct Target {
    pub(super) source: Source,
    /// Index in the list of targets, which is in the names of credential variables.
    pub(super) index: usize,
    /// The dump's key in the archive.
    pub(super) key: String,
}

/// Returns true if a database is a file. A verification creates a separate one.
pub(super) fn is_file(source: &Source) -> bool {
    source.type_.name == "sqlite"
}

/// Checks that the plugin can restore a database.
pub(super) fn target(
    source: &Source,
    index: usize,
    key: String,
    parent: &Parent,
) -> Result<Target, Stop> {
    let refused = |problem: &str| {
        let kind = source.kind;
        let name = &source.name;
        Err(Stop::invalid_reference(format!("{kind} {name}: {problem}")))
    };
    let is_all = source.config.get("all_databases") == Some(&true.into());
    match source.type_.name {
        "postgresql" if is_all => refused(
            "a dump of all databases of PostgreSQL has roles that exist; restore it by hand",
        ),
        "postgresql" | "mysql" if source.config.contains_key("socket") => refused(
            "config.socket cannot be used to restore; name a Database with config.host in overrides",
        ),
        "sqlite" if parent.kind == Kind::Restore && !is_writable(source, parent) => {
            refused("config.path is not inside a mount in spec.volumes with readOnly: false")
        }
        "postgresql" | "mysql" | "sqlite" => Ok(Target {
            source: source.clone(),
            index,
            key,
        }),
        other => {
            let remedy = match parent.kind {
                Kind::Restore => "list the others in spec.databases",
                _ => "remove it from spec.verify.databases",
            };
            refused(&format!(
                "config.type: a dump of {other} cannot be restored, only one of postgresql, mysql or sqlite; {remedy}, and \
                 restore this one by hand"
            ))
        }
    }
}

/// Returns true if a database file is in a volume that the restoration may write to.
fn is_writable(source: &Source, parent: &Parent) -> bool {
    let path = source
        .config
        .get("path")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut volumes = parent.spec.volumes.iter();
    !path.split('/').any(|part| part == "..")
        && volumes.any(|volume| volume.holds(path) && !volume.read_only)
}
