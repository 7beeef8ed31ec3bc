//! The part of a cluster that a host serves, as the host's Lease states it.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::{Expression, Selector};

use super::{
    Object, Shards,
    names::{ANNOTATION_NAMESPACES, ANNOTATION_PLUGIN_SELECTOR, ANNOTATION_SHARDS},
    parse_selector,
};

/// The part of a cluster that a host serves; the default is everything, alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostScope {
    /// The namespaces that it is limited to; none: all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Selects the host's Plugins.
    pub selector: Selector,
    /// The number of shards that hosts with this scope share.
    pub shards: Shards,
}

impl HostScope {
    /// Returns the Lease's annotations; one without a value is absent.
    pub fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let join = |names: &BTreeSet<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            names.join(",")
        };
        let selector = (!self.selector.selects_all()).then(|| self.selector.to_string());
        let shards = (!self.shards.is_one()).then(|| self.shards.to_string());
        BTreeMap::from([
            (ANNOTATION_NAMESPACES, self.namespaces.as_ref().map(join)),
            (ANNOTATION_PLUGIN_SELECTOR, selector),
            (ANNOTATION_SHARDS, shards),
        ])
    }

    /// Returns the scope that a lease states.
    pub fn from_lease(lease: &Object) -> Self {
        let namespaces = lease
            .annotation(ANNOTATION_NAMESPACES)
            .map(|names| names.split(',').map(str::trim).map(str::to_owned).collect());
        let selector = lease.annotation(ANNOTATION_PLUGIN_SELECTOR);
        Self {
            namespaces,
            // Unreadable counts as all: a host must not start beside one that may serve the same Plugins.
            selector: selector
                .and_then(|text| parse_selector(text).ok())
                .unwrap_or_default(),
            shards: Shards::from_annotation(lease.annotation(ANNOTATION_SHARDS)),
        }
    }

    /// Returns true if both may serve the same parent.
    pub fn meets(&self, other: &Self) -> bool {
        let share_namespaces = self
            .namespaces
            .as_ref()
            .zip(other.namespaces.as_ref())
            .is_none_or(|(own, others)| !own.is_disjoint(others));
        share_namespaces && !are_disjoint(&self.selector, &other.selector)
    }
}

/// Returns true if no labels match both selectors, as far as single requirements show.
fn are_disjoint(one: &Selector, other: &Selector) -> bool {
    let others: Vec<Expression> = other.clone().into_iter().collect();
    one.clone().into_iter().any(|requirement| {
        others
            .iter()
            .any(|other| excludes(&requirement, other) || excludes(other, &requirement))
    })
}

/// Returns true if labels that meet the first requirement cannot meet the second.
fn excludes(one: &Expression, other: &Expression) -> bool {
    let Some((key, values)) = allowed(one) else {
        let absent = matches!(one, Expression::DoesNotExist(key) if matches!(other, Expression::Exists(other) if key == other));
        return absent;
    };
    match other {
        Expression::In(other, others) => *other == key && values.is_disjoint(others),
        Expression::Equal(other, value) => *other == key && !values.contains(value),
        Expression::NotIn(other, others) => *other == key && values.is_subset(others),
        // The key is there, because the first requirement names values for it.
        Expression::NotEqual(other, value) => {
            *other == key && values.iter().all(|allowed| allowed == value)
        }
        Expression::DoesNotExist(other) => *other == key,
        Expression::Exists(_) => false,
    }
}

/// Returns key and values if the requirement names the allowed values.
fn allowed(expression: &Expression) -> Option<(String, BTreeSet<String>)> {
    match expression {
        Expression::In(key, values) => Some((key.clone(), values.clone())),
        Expression::Equal(key, value) => Some((key.clone(), BTreeSet::from([value.clone()]))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(namespaces: &str, selector: &str) -> HostScope {
        let names = || namespaces.split(',').map(str::to_owned).collect();
        HostScope {
            namespaces: (!namespaces.is_empty()).then(names),
            selector: parse_selector(selector).unwrap(),
            ..HostScope::default()
        }
    }

    #[test]
    fn scopes_meet_unless_namespaces_or_requirements_exclude_each_other() {
        for (one, other, meets) in [
            (("", ""), ("", ""), true),
            (("", ""), ("a", "team=x"), true),
            (("a,b", ""), ("b,c", ""), true),
            (("a", ""), ("b", ""), false),
            (("a", ""), ("a,b", "team=x"), true),
            (("", "team=x"), ("", "team=x"), true),
            (("", "team=x"), ("", "team=y"), false),
            (("", "team=x"), ("", "tier=y"), true),
            (("", "team=x"), ("", "team!=x"), false),
            (("", "team=x"), ("", "team!=y"), true),
            (("", "team in (x,y)"), ("", "team in (y,z)"), true),
            (("", "team in (x,y)"), ("", "team in (z)"), false),
            (("", "team in (x,y)"), ("", "team notin (x,y,z)"), false),
            (("", "team in (x,y)"), ("", "team notin (x)"), true),
            (("", "team"), ("", "!team"), false),
            (("", "team=x"), ("", "!team"), false),
            (("", "team"), ("", "team=x"), true),
            (("", "team=x,tier=1"), ("", "tier=2"), false),
            (("a", "team=x"), ("a", "team=y"), false),
        ] {
            let first = scope(one.0, one.1);
            let second = scope(other.0, other.1);
            assert_eq!(first.meets(&second), meets, "{one:?} {other:?}");
            assert_eq!(second.meets(&first), meets, "{other:?} {one:?}");
        }
    }
}
