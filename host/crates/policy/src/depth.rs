//! Limits nesting, so that a plugin, or two that create each other's parents, cannot multiply one object without end.

use innkeeper_model::Child;

use super::{DEPTH_MAX, Rejection, Rules};

/// Refuses a child of the plugin's own parent kinds, unless the grant allows one at this depth. Refuses a child that
/// another plugin serves if the parent is so deep that the plugins must be creating each other's parents.
pub(super) fn check(child: &Child, rules: &Rules<'_>) -> Result<(), Rejection> {
    let kind = child.kind.group_kind();
    let is_own = rules.manifest.reconciles(&kind);
    if !is_own && !rules.resources.has_parents(&kind) {
        return Ok(());
    }
    let granted = rules.grants.children.get(&kind);
    match granted.map_or(0, |grant| grant.depth) {
        // No grant of one plugin shows a ring of several, so the depth alone ends it.
        0 if !is_own && rules.depth < DEPTH_MAX => Ok(()),
        0 if !is_own => Err(Rejection::forbidden(format!(
            "{} is at depth {}, so it may have no children of kind {}, which another plugin serves: end the ring of plugins that make parents of each other",
            rules.parent, rules.depth, child.kind
        ))),
        0 => Err(Rejection::forbidden(format!(
            "the plugin reconciles {} itself, so each such child could make further ones: grant children of this kind with depth: 1 or more, or leave the child out",
            child.kind
        ))),
        depth if rules.depth >= depth => Err(Rejection::forbidden(format!(
            "{} is at depth {}, so it may have no children of kind {}: raise the depth in the grant, which is {depth}, or leave the child out",
            rules.parent, rules.depth, child.kind
        ))),
        _ => Ok(()),
    }
}
