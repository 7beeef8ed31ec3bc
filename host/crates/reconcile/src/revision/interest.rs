//! The kinds that must be watched for the passes of one kind of parent.

use std::{collections::BTreeSet, iter, sync::Arc};

use innkeeper_cluster::{ChildInterest, Interest};
use innkeeper_model::{Gvk, PluginName, ReadKind, Scope, Selector};

use crate::{limits::quota::cache_bound, revision::Serving};

/// Returns the kinds to watch while passes begin with `newest` and passes of `others` may still run.
///
/// Only the children of `newest` can be required before a pass begins, because the running passes of the others have
/// observed already. The kinds that the others may read or create stay watched as long as the caller names them.
pub(crate) fn interest<'a>(
    plugin: &PluginName,
    parent: &Gvk,
    newest: &Serving,
    others: impl IntoIterator<Item = &'a Serving>,
    once_made: &BTreeSet<Gvk>,
) -> Interest {
    let manifest = newest.plugin.manifest();
    let group_kind = parent.group_kind();
    let mut parents = manifest.parents.iter();
    let declaration = parents.find(|parent| parent.kind.group_kind() == group_kind);
    // A parent without a declaration gets the scope that shows the least of its children.
    let scope = declaration.map_or(Scope::Cluster, |parent| parent.scope);
    let child = |kind: &Gvk, serving: &Serving, required| ChildInterest {
        kind: kind.clone(),
        required,
        recorded: once_made
            .iter()
            .any(|made| made.group_kind() == kind.group_kind()),
        access: serving.grants.child_access(&kind.group_kind(), scope),
    };
    let mut children: Vec<ChildInterest> = Vec::new();
    let mut reads: Vec<ReadKind> = Vec::new();
    let mut field_managers: BTreeSet<Arc<str>> = BTreeSet::new();
    let others = others.into_iter().map(|other| (other, false));
    for (serving, is_newest) in iter::once((newest, true)).chain(others) {
        field_managers.extend(serving.field_manager.clone());
        for declared in &serving.plugin.manifest().children {
            let required = is_newest && declared.required;
            children.push(child(&declared.kind, serving, required));
        }
        for read in serving.reads.iter().chain(&*serving.own_reads) {
            if !reads.contains(read) {
                reads.push(read.clone());
            }
        }
    }
    // The plugin may not declare these kinds any more, so a kind that is not served must not stop its passes.
    children.extend(once_made.iter().map(|kind| child(kind, newest, false)));
    let mut seen = BTreeSet::new();
    children.retain(|child| seen.insert(child.kind.group_kind()));
    Interest {
        plugin: plugin.clone(),
        parent: declaration.map_or(parent, |parent| &parent.kind).clone(),
        children,
        reads,
        selector: Selector::default(),
        field_managers,
        namespace_max: cache_bound(&newest.limits),
    }
}

impl Serving {
    /// Returns the kinds to watch before the first passes, for each kind of parents.
    pub fn interests(&self, plugin: &PluginName, once_made: &BTreeSet<Gvk>) -> Vec<Interest> {
        self.parents()
            .map(|parent| interest(plugin, &parent.kind, self, [], once_made))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::serving_of;
    use innkeeper_model::parse_selector;
    use innkeeper_policy::Selection;
    use innkeeper_sandbox::testing::{Description, guest};

    fn serving(child: &str, read: &str) -> Serving {
        let kind = |kind: &str| ["v1", kind].map(str::to_owned);
        serving_of(guest().describing(Description {
            children: vec![kind(child)],
            reads: vec![["v1", read, ""].map(str::to_owned)],
            ..Description::default()
        }))
    }

    #[test]
    fn only_the_newest_revision_requires_kinds_and_the_kinds_of_running_passes_stay_watched() {
        let plugin = PluginName::new("web").unwrap();
        let parent = Gvk::new("example.com", "v1", "Web");
        let (old, new) = (serving("ConfigMap", "Pod"), serving("Service", "Endpoints"));
        let once_made =
            BTreeSet::from(["ConfigMap", "Service", "Secret"].map(|kind| Gvk::new("", "v1", kind)));
        let told = |others: &[&Serving], once_made: &BTreeSet<Gvk>| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, &new, others, once_made);
            let child = |child: &ChildInterest| format!("{} {}", child.kind.kind, child.required);
            let children: Vec<String> = interest.children.iter().map(child).collect();
            let reads: Vec<String> = interest
                .reads
                .iter()
                .map(|read| read.kind.kind.to_string())
                .collect();
            (children.join(", "), reads.join(", "))
        };
        let during = told(&[&old], &BTreeSet::new());
        assert_eq!(
            during,
            (
                "Service true, ConfigMap false".to_owned(),
                "Endpoints, Pod".to_owned()
            )
        );
        let as_operator = serving("ConfigMap", "Pod").applying_as("operator");
        let managers = |newest: &Serving, others: &[&Serving]| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, newest, others, &once_made);
            let managers = interest.field_managers.iter();
            managers.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(managers(&new, &[&old, &as_operator]), ["operator"]);
        assert_eq!(managers(&as_operator, &[&new]), ["operator"]);
        assert_eq!(managers(&new, &[&old]), [""; 0]);
        let by_labels = parse_selector("team=a").unwrap();
        let choosy = serving("Service", "Pod").selecting(Selection {
            namespaces: by_labels,
            ..Selection::default()
        });
        let reads = |newest: &Serving, others: &[&Serving]| {
            let others = others.iter().copied();
            let interest = interest(&plugin, &parent, newest, others, &once_made);
            let read = |read: &ReadKind| format!("{} {}", read.kind.kind, read.access);
            interest.reads.iter().map(read).collect::<Vec<_>>()
        };
        assert_eq!(reads(&choosy, &[]), ["Pod full", "Namespace metadata"]);
        let both = ["Endpoints full", "Pod full", "Namespace metadata"];
        assert_eq!(reads(&new, &[&choosy]), both);
        let after = told(&[], &once_made);
        let children = "Service true, ConfigMap false, Secret false".to_owned();
        assert_eq!(after, (children, "Endpoints".to_owned()));
    }
}
