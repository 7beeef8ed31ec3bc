//! A part of a kind's objects, by namespace: what one request lists and watches, and which parents wait together.

use std::sync::Arc;

use innkeeper_model::{Shard, ShardSet, Shards};

/// A part of a kind's objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    /// All objects; also those of a cluster-scoped kind.
    Whole,
    /// Those in one namespace.
    Namespace(Arc<str>),
    /// Those in the namespaces of some shards.
    Shards(Shards, ShardSet),
}

impl Section {
    /// The section of one namespace; without a namespace, the whole.
    pub(super) fn at(namespace: Option<&Arc<str>>) -> Self {
        namespace.map_or(Self::Whole, |name| Self::Namespace(Arc::clone(name)))
    }

    /// The only namespace.
    pub(super) const fn namespace(&self) -> Option<&Arc<str>> {
        match self {
            Self::Namespace(name) => Some(name),
            Self::Whole | Self::Shards(..) => None,
        }
    }

    /// The shards, if the section consists of shards.
    pub(super) const fn shards(&self) -> Option<&ShardSet> {
        match self {
            Self::Shards(_, set) => Some(set),
            Self::Whole | Self::Namespace(_) => None,
        }
    }

    /// Returns true if the section has the objects in a namespace; cluster-scoped objects have the empty name.
    pub(super) fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::Whole => true,
            Self::Namespace(name) => **name == *namespace,
            Self::Shards(shards, set) => set.contains(&shards.of(Some(namespace))),
        }
    }

    /// Returns true if both may have the same object.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole, _) | (_, Self::Whole) => true,
            (Self::Namespace(name), section) | (section, Self::Namespace(name)) => {
                section.covers(name)
            }
            (Self::Shards(_, one), Self::Shards(_, other)) => !one.is_disjoint(other),
        }
    }

    /// Returns true if a request for this section can go on for another one, because it shows at least those objects.
    pub(super) fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shards(_, one), Self::Shards(_, other)) => one.is_superset(other),
            (one, other) => one == other,
        }
    }

    /// Returns a section that has at least the objects of both.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Shards(shards, one), Self::Shards(_, other)) => {
                Self::Shards(shards, &one | &other)
            }
            (one, other) if one == other => one,
            _ => Self::Whole,
        }
    }

    /// Returns the parameter `shardSelector`, encoded for a URL, by which the API server selects the shards.
    pub(super) fn shard_selector(&self) -> Option<String> {
        let Self::Shards(shards, set) = self else {
            return None;
        };
        // The server hashes each object's namespace once for every range.
        let mut ranges: Vec<(u64, Option<u64>)> = Vec::new();
        for (start, end) in set.iter().map(|shard| shards.range(*shard)) {
            match ranges.last_mut() {
                Some((_, last)) if *last == Some(start) => *last = end,
                _ => ranges.push((start, end)),
            }
        }
        let text = |(start, end): (u64, Option<u64>)| {
            // One more than the largest hash has 17 digits.
            let end = end.map_or(1 << 64, u128::from);
            format!("shardRange(object.metadata.namespace,%270x{start:016x}%27,%270x{end:016x}%27)")
        };
        let texts: Vec<String> = ranges.into_iter().map(text).collect();
        Some(texts.join("%7C%7C"))
    }
}

/// Returns the shards as text: `0,2`.
pub(super) fn shards_text(shards: &ShardSet) -> String {
    let texts: Vec<String> = shards.iter().map(Shard::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(count: u32, indexes: &[usize]) -> Section {
        let shards = Shards::new(count).unwrap();
        let set = indexes.iter().map(|index| shards.at(*index).unwrap());
        Section::Shards(shards, set.collect())
    }

    #[test]
    fn the_selector_has_one_range_for_shards_in_a_row() {
        let range = |start, end| {
            format!("shardRange(object.metadata.namespace,%270x{start}%27,%270x{end}%27)")
        };
        let [zero, quarter, half, end] = [
            "0000000000000000",
            "4000000000000000",
            "8000000000000000",
            "10000000000000000",
        ];
        for (set, expected) in [
            (shards(4, &[0]), range(zero, quarter)),
            (shards(4, &[0, 1]), range(zero, half)),
            (shards(4, &[0, 1, 2, 3]), range(zero, end)),
            (shards(2, &[1]), range(half, end)),
            (
                shards(4, &[0, 2, 3]),
                [range(zero, quarter), range(half, end)].join("%7C%7C"),
            ),
        ] {
            assert_eq!(set.shard_selector(), Some(expected), "{set:?}");
        }
        assert_eq!(Section::Whole.shard_selector(), None);
        assert_eq!(Section::Namespace("a".into()).shard_selector(), None);
    }

    #[test]
    fn sections_overlap_if_they_may_share_an_object() {
        let name = |text: &str| Section::Namespace(text.into());
        // `default` belongs to the last of four shards.
        for (one, other, overlaps, includes) in [
            (Section::Whole, Section::Whole, true, true),
            (Section::Whole, name("a"), true, false),
            (name("a"), name("a"), true, true),
            (name("a"), name("b"), false, false),
            (shards(4, &[0, 3]), name("default"), true, false),
            (shards(4, &[0, 1]), name("default"), false, false),
            (shards(4, &[0, 1]), shards(4, &[1, 2]), true, false),
            (shards(4, &[0, 1]), shards(4, &[1]), true, true),
            (shards(4, &[0, 1]), shards(4, &[2]), false, false),
            (Section::Whole, shards(4, &[2]), true, false),
        ] {
            assert_eq!(one.overlaps(&other), overlaps, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), overlaps, "{other:?} {one:?}");
            assert_eq!(one.includes(&other), includes, "{one:?} {other:?}");
        }
        assert!(shards(4, &[3]).covers("default") && !shards(4, &[0]).covers("default"));
        assert_eq!(shards(4, &[0]).and(shards(4, &[3])), shards(4, &[0, 3]));
        assert_eq!(shards(4, &[0]).and(Section::Whole), Section::Whole);
        assert_eq!(name("a").and(name("a")), name("a"));
    }
}
