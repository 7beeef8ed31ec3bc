//! The kinds to watch for the passes of one parent kind.

use std::{collections::BTreeSet, iter, sync::Arc};

use innkeeper_cluster::{ChildInterest, Interest};
use innkeeper_model::{Gvk, PluginName, ReadKind, Scope, Selector};

use super::Revision;
use crate::limits::quota::cache_limit;

/// Returns the kinds to watch while passes begin with `newest` and passes with `others` may still run.
///
/// Passes wait only for the child kinds of `newest`, because passes with the others have observed already. The kinds that
/// the others may read or create stay watched as long as the caller passes them.
pub(crate) fn interest<'a>(
    plugin: &PluginName,
    parent: &Gvk,
    newest: &Revision,
    others: impl IntoIterator<Item = &'a Revision>,
    recorded_kinds: &BTreeSet<Gvk>,
) -> Interest {
    let manifest = newest.plugin.manifest();
    let group_kind = parent.group_kind();
    let declaration = manifest
        .parents
        .iter()
        .find(|parent| parent.kind.group_kind() == group_kind);
    // For an undeclared parent, the scope that shows least of its children.
    let scope = declaration.map_or(Scope::Cluster, |parent| parent.scope);
    let child = |kind: &Gvk, revision: &Revision, required| ChildInterest {
        kind: kind.clone(),
        required,
        recorded: recorded_kinds
            .iter()
            .any(|recorded| recorded.group_kind() == kind.group_kind()),
        access: revision.grants.child_access(&kind.group_kind(), scope),
    };
    let mut children: Vec<ChildInterest> = Vec::new();
    let mut reads: Vec<ReadKind> = Vec::new();
    let mut field_managers: BTreeSet<Arc<str>> = BTreeSet::new();
    let others = others.into_iter().map(|other| (other, false));
    for (revision, is_newest) in iter::once((newest, true)).chain(others) {
        // The cache drops other managers' entries, and a running pass still compares children with its own revision's.
        field_managers.extend(revision.field_manager.clone());
        for declared in &revision.plugin.manifest().children {
            let required = is_newest && declared.required;
            children.push(child(&declared.kind, revision, required));
        }
        for read in revision.reads.iter().chain(&*revision.own_reads) {
            if !reads.contains(read) {
                reads.push(read.clone());
            }
        }
    }
    // The plugin may no longer declare these kinds, so passes must not wait if the cluster does not serve one.
    children.extend(recorded_kinds.iter().map(|kind| child(kind, newest, false)));
    let mut kinds = BTreeSet::new();
    // The first one of a kind stays: the newest revision's children come first.
    children.retain(|child| kinds.insert(child.kind.group_kind()));
    Interest {
        plugin: plugin.clone(),
        parent: declaration.map_or(parent, |parent| &parent.kind).clone(),
        children,
        reads,
        selector: Selector::default(),
        field_managers,
        all_shards: false,
        namespace_max: cache_limit(&newest.limits),
    }
}

impl Revision {
    /// Returns the kinds to watch before the first passes, for each parent kind.
    pub fn interests(&self, plugin: &PluginName, recorded_kinds: &BTreeSet<Gvk>) -> Vec<Interest> {
        self.parents()
            .map(|parent| interest(plugin, &parent.kind, self, [], recorded_kinds))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::revision_of;
    use innkeeper_model::parse_selector;
    use innkeeper_policy::Selection;
    use innkeeper_sandbox::testing::{Description, guest};

    fn revision(child: &str, read: &str) -> Revision {
        let kind = |kind: &str| ["v1", kind].map(str::to_owned);
        revision_of(guest().describing(Description {
            children: vec![kind(child)],
            reads: vec![["v1", read, ""].map(str::to_owned)],
            ..Description::default()
        }))
    }

    #[test]
    fn only_the_newest_revision_requires_kinds_and_the_kinds_of_running_passes_stay_watched() {
        let plugin = PluginName::new("web").unwrap();
        let parent = Gvk::new("example.com", "v1", "Web");
        let old = revision("ConfigMap", "Pod");
        let new = revision("Service", "Endpoints");
        let recorded_kinds =
            BTreeSet::from(["ConfigMap", "Service", "Secret"].map(|kind| Gvk::new("", "v1", kind)));
        let interests = |others: &[&Revision], recorded_kinds: &BTreeSet<Gvk>| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, &new, others, recorded_kinds);
            let child = |child: &ChildInterest| format!("{} {}", child.kind.kind, child.required);
            let children: Vec<String> = interest.children.iter().map(child).collect();
            let reads: Vec<String> = interest
                .reads
                .iter()
                .map(|read| read.kind.kind.to_string())
                .collect();
            (children.join(", "), reads.join(", "))
        };
        let during = interests(&[&old], &BTreeSet::new());
        assert_eq!(
            during,
            (
                "Service true, ConfigMap false".to_owned(),
                "Endpoints, Pod".to_owned()
            )
        );
        let as_operator = revision("ConfigMap", "Pod").applying_as("operator");
        let managers = |newest: &Revision, others: &[&Revision]| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, newest, others, &recorded_kinds);
            interest
                .field_managers
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(managers(&new, &[&old, &as_operator]), ["operator"]);
        assert_eq!(managers(&as_operator, &[&new]), ["operator"]);
        assert_eq!(managers(&new, &[&old]), [""; 0]);
        let by_labels = parse_selector("team=a").unwrap();
        let choosy = revision("Service", "Pod").selecting(Selection {
            namespaces: by_labels,
            ..Selection::default()
        });
        let reads = |newest: &Revision, others: &[&Revision]| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, newest, others, &recorded_kinds);
            let read = |read: &ReadKind| format!("{} {}", read.kind.kind, read.access);
            interest.reads.iter().map(read).collect::<Vec<_>>()
        };
        assert_eq!(reads(&choosy, &[]), ["Pod full", "Namespace metadata"]);
        let both = ["Endpoints full", "Pod full", "Namespace metadata"];
        assert_eq!(reads(&new, &[&choosy]), both);
        let after = interests(&[], &recorded_kinds);
        let children = "Service true, ConfigMap false, Secret false".to_owned();
        assert_eq!(after, (children, "Endpoints".to_owned()));
    }
}
