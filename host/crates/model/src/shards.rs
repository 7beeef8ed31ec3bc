//! Shards: parts of the parents, by namespace, that hosts share out among themselves.
//!
//! The API server must select the same objects (`shardSelector=shardRange(object.metadata.namespace, …)`), so the hash and
//! the ranges follow `k8s.io/apimachinery/pkg/sharding`: FNV-1a with 64 bits, and each shard has one range of hashes.
//! This hash spreads the last characters badly: namespaces that differ only in the last two share a range.

use std::{collections::BTreeSet, fmt, num::NonZeroU8};

/// The number of shards, 1 to 64; the default is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shards(NonZeroU8);

/// A shard's index, below the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u8);

/// Some of the shards.
pub type ShardSet = BTreeSet<Shard>;

impl Shards {
    /// One shard: one host does all the work.
    pub const ONE: Self = Self(NonZeroU8::MIN);

    /// The most shards.
    pub const MAX: u8 = 64;

    /// Returns none for 0 and for more than [`MAX`](Self::MAX).
    pub fn new(count: u32) -> Option<Self> {
        let count = u8::try_from(count)
            .ok()
            .filter(|count| *count <= Self::MAX)?;
        NonZeroU8::new(count).map(Self)
    }

    /// Returns the number that a Lease's [annotation](super::ANNOTATION_SHARDS) states: one without it, or if it is not
    /// readable.
    pub fn from_annotation(text: Option<&str>) -> Self {
        text.and_then(|text| text.parse().ok())
            .and_then(Self::new)
            .unwrap_or_default()
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0.get()
    }

    /// Returns true if there is only one.
    pub const fn is_one(self) -> bool {
        self.get() == 1
    }

    /// Returns every shard, the lowest first.
    pub fn all(self) -> impl DoubleEndedIterator<Item = Shard> {
        (0..self.get()).map(Shard)
    }

    /// Returns the shard with this index; none if there are fewer.
    pub fn at(self, index: usize) -> Option<Shard> {
        let index = u8::try_from(index).ok()?;
        (index < self.get()).then_some(Shard(index))
    }

    /// Returns a parent's shard, by the hash of its namespace. Cluster-scoped parents belong to the leader's.
    pub fn of(self, namespace: Option<&str>) -> Shard {
        namespace.map_or(Shard::LEADER, |namespace| {
            self.of_hash(namespace_hash(namespace))
        })
    }

    fn of_hash(self, hash: u64) -> Shard {
        let product = u128::from(hash) * u128::from(self.get());
        let index = usize::try_from(product >> 64).unwrap_or_default();
        // With a count that is not a power of two, starts are rounded down: the hash may be the start of the next range.
        [index + 1, index]
            .into_iter()
            .filter_map(|index| self.at(index))
            .find(|shard| self.start(*shard) <= hash)
            .unwrap_or(Shard::LEADER)
    }

    /// Returns the first hash of a shard's range, and the first one behind it; none for the last range, which includes
    /// the largest hash.
    pub fn range(self, shard: Shard) -> (u64, Option<u64>) {
        let end = self.at(shard.index() + 1).map(|next| self.start(next));
        (self.start(shard), end)
    }

    fn start(self, shard: Shard) -> u64 {
        let start = (u128::from(shard.0) << 64) / u128::from(self.get());
        u64::try_from(start).unwrap_or(u64::MAX)
    }
}

impl Default for Shards {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Shard {
    /// The shard whose holder is the leader: it has the work that cannot be shared out, and cluster-scoped parents.
    pub const LEADER: Self = Self(0);

    /// Returns the index, from 0.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Hashes a namespace as the API server does for `shardRange(object.metadata.namespace, …)`: 64-bit FNV-1a.
pub fn namespace_hash(namespace: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;

    namespace.bytes().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_hashed_as_the_api_server_does() {
        // Published test vectors of FNV-1a; the server's hash is Go's `fnv.New64a`.
        for (namespace, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(namespace_hash(namespace), hash, "{namespace}");
        }
    }

    #[test]
    fn the_ranges_cover_all_hashes_once() {
        for count in 1..=u32::from(Shards::MAX) {
            let shards = Shards::new(count).unwrap();
            let mut next = Some(0);
            for shard in shards.all() {
                let (start, end) = shards.range(shard);
                assert_eq!(Some(start), next, "{shard} of {shards}");
                next = end;
                let last = end.map_or(u64::MAX, |end| end - 1);
                assert!(start < last);
                for hash in [start, start + 1, last] {
                    assert_eq!(shards.of_hash(hash), shard, "{hash:x} of {shards}");
                }
            }
            assert_eq!(next, None);
        }
    }

    #[test]
    fn cluster_scoped_parents_belong_to_the_leader() {
        let four = Shards::new(4).unwrap();
        assert_eq!(four.of(None), Shard::LEADER);
        assert_eq!(four.of(Some("default")).index(), 3);
        assert_eq!(Shards::ONE.of(Some("default")), Shard::LEADER);
    }

    #[test]
    fn there_are_1_to_64_shards() {
        for count in [0, 65, 256, u32::MAX] {
            assert_eq!(Shards::new(count), None);
        }
        assert_eq!(Shards::new(64).unwrap().all().count(), 64);
        assert_eq!(Shards::new(1), Some(Shards::default()));
    }
}
