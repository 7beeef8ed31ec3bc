//! Selects the parents that a plugin serves.

use std::collections::BTreeMap;

use innkeeper_model::{Selector, SelectorExt};

/// The selectors for served parents; the default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Selects by namespace labels; cluster-scoped parents always match.
    pub namespaces: Selector,
    /// Selects by parent labels.
    pub parents: Selector,
}

/// The reason why a parent is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSelected {
    /// The parent selector does not match.
    ByItsLabels,
    /// The namespace selector does not match.
    ByItsNamespace,
    /// The parent is in a system namespace that the grants do not name.
    InSystemNamespace,
}

impl Selection {
    /// Returns true if every parent is served.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the selection depends on namespace labels.
    pub fn asks_for_namespaces(&self) -> bool {
        !self.namespaces.selects_all()
    }

    /// Checks the parent's labels, then the namespace's; `namespace` is `None` for a cluster-scoped parent.
    pub fn select(
        &self,
        parent: &BTreeMap<String, String>,
        namespace: Option<&BTreeMap<String, String>>,
    ) -> Result<(), NotSelected> {
        // First, because the parent's owner can change these labels, but not those of the namespace.
        if !self.parents.matches(parent) {
            return Err(NotSelected::ByItsLabels);
        }
        match namespace {
            Some(labels) if !self.namespaces.matches(labels) => Err(NotSelected::ByItsNamespace),
            _ => Ok(()),
        }
    }
}

impl NotSelected {
    /// Returns the Plugin field that decides it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::ByItsLabels => "spec.parents.labelSelector",
            Self::ByItsNamespace => "spec.parents.namespaceSelector",
            Self::InSystemNamespace => "spec.grants.systemNamespaces",
        }
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_model::parse_selector;

    use super::*;

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn selection(namespaces: &str, parents: &str) -> Selection {
        Selection {
            namespaces: parse_selector(namespaces).unwrap(),
            parents: parse_selector(parents).unwrap(),
        }
    }

    #[test]
    fn both_selectors_must_match_a_parent() {
        use NotSelected::{ByItsLabels, ByItsNamespace};

        let both = selection("team in (a,b)", "tier,!old");
        for (namespace, parent, expected) in [
            ("team=a", "tier=1", Ok(())),
            ("team=b,x=y", "tier=,x=y", Ok(())),
            ("team=c", "tier=1", Err(ByItsNamespace)),
            ("", "tier=1", Err(ByItsNamespace)),
            ("team=a", "", Err(ByItsLabels)),
            ("team=a", "tier=1,old=1", Err(ByItsLabels)),
            // If neither matches, the parent's labels are named: the owner can change them.
            ("", "", Err(ByItsLabels)),
        ] {
            let selected = both.select(&labels(parent), Some(&labels(namespace)));
            assert_eq!(selected, expected, "{namespace:?} {parent:?}");
        }
    }

    #[test]
    fn a_cluster_scoped_parent_is_selected_by_its_own_labels() {
        let both = selection("team=a", "tier=1");
        assert_eq!(both.select(&labels("tier=1"), None), Ok(()));
        let other = both.select(&labels("tier=2"), None);
        assert_eq!(other, Err(NotSelected::ByItsLabels));
    }

    #[test]
    fn an_empty_selector_selects_all() {
        let all = selection("", "");
        assert!(all.is_all() && !all.asks_for_namespaces());
        assert_eq!(all.select(&labels(""), Some(&labels(""))), Ok(()));
        let by_labels = selection("", "tier=1");
        assert!(!by_labels.is_all() && !by_labels.asks_for_namespaces());
        let by_namespace = selection("team=a", "");
        assert!(!by_namespace.is_all() && by_namespace.asks_for_namespaces());
        let selected = by_namespace.select(&labels(""), Some(&labels("team=a")));
        assert_eq!(selected, Ok(()));
    }
}
