//! The record: the whole state of the bootstrap, in the ConfigMap `<name>-cluster-state`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;

use crate::{cluster::Cluster, version::Version};

const MEMBERS: &str = "ETCD_INITIAL_CLUSTER";
const STATE: &str = "ETCD_INITIAL_CLUSTER_STATE";
const TOKEN: &str = "ETCD_INITIAL_CLUSTER_TOKEN";
const VOTERS: &str = "etcd.ydzs.io/voters";
const SEQUENCE: &str = "etcd.ydzs.io/sequence";
const VERSION: &str = "etcd.ydzs.io/version";
/// The prefix of the keys that let a member of a formed cluster start without data; the init container reads them.
const ADMIT: &str = "ADMIT_";

/// The decisions about the membership of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The ordinals of all members.
    pub(crate) members: BTreeSet<i32>,
    /// The cluster is formed; this never becomes false again.
    pub(crate) formed: bool,
    /// The initial cluster token of etcd, which is part of the cluster's ID.
    pub(crate) token: String,
    /// The ordinals of confirmed voters; none while they are unknown.
    pub(crate) voters: Option<BTreeSet<i32>>,
    /// The number of operations that have ended.
    pub(crate) sequence: u64,
    /// The ordinals of members that may start without data although the cluster is formed: they have never been ready.
    pub(crate) admitted: BTreeSet<i32>,
    /// The version that all members had last when they were ready; none while it is unknown.
    pub(crate) version: Option<Version>,
}

impl Record {
    /// The record of a cluster that has never run.
    pub(crate) fn founding(cluster: &Cluster<'_>, members: BTreeSet<i32>) -> Self {
        Self {
            members,
            formed: false,
            token: format!("{}-{}-{}", cluster.namespace, cluster.name, cluster.uid),
            voters: None,
            sequence: 0,
            admitted: BTreeSet::new(),
            version: None,
        }
    }

    /// The record in a ConfigMap; none if it is no record of this cluster.
    pub(crate) fn parse(cluster: &Cluster<'_>, config_map: &ConfigMap) -> Option<Self> {
        let data = config_map.data.as_ref()?;
        let prefix = format!("{}-", cluster.name);
        let ordinal = |entry: &str| -> Option<i32> {
            entry.split('=').next()?.strip_prefix(&prefix)?.parse().ok()
        };
        let members: Option<BTreeSet<i32>> = data
            .get(MEMBERS)?
            .split(',')
            .filter(|it| !it.is_empty())
            .map(ordinal)
            .collect();
        let none = BTreeMap::new();
        let annotations = config_map.metadata.annotations.as_ref().unwrap_or(&none);
        Some(Self {
            members: members?,
            formed: data.get(STATE).is_some_and(|state| state == "existing"),
            token: data.get(TOKEN)?.clone(),
            // A text that is no list of ordinals says nothing about the voters.
            voters: annotations
                .get(VOTERS)
                .and_then(|text| text.split(',').map(|it| it.parse().ok()).collect()),
            sequence: annotations
                .get(SEQUENCE)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            admitted: data
                .keys()
                .filter_map(|key| key.strip_prefix(ADMIT)?.parse().ok())
                .collect(),
            version: annotations
                .get(VERSION)
                .and_then(|text| Version::parse(text)),
        })
    }

    /// The number of replicas with which the highest ordinal is that of the highest member.
    pub(crate) fn replicas(&self) -> i32 {
        self.members.last().map_or(0, |top| top + 1)
    }

    /// The data of the ConfigMap, which the members read at every start.
    pub(crate) fn data(&self, cluster: &Cluster<'_>) -> BTreeMap<String, String> {
        let entry = |ordinal: &i32| {
            format!(
                "{}={}",
                cluster.member(*ordinal),
                cluster.peer_url(*ordinal)
            )
        };
        let members: Vec<String> = self.members.iter().map(entry).collect();
        let state = if self.formed { "existing" } else { "new" };
        let admitted = self.admitted.iter();
        let admitted = admitted.map(|ordinal| (format!("{ADMIT}{ordinal}"), "1".to_owned()));
        let state = [
            (MEMBERS.to_owned(), members.join(",")),
            (STATE.to_owned(), state.to_owned()),
            (TOKEN.to_owned(), self.token.clone()),
        ];
        state.into_iter().chain(admitted).collect()
    }

    /// The annotations of the ConfigMap, which only the guest reads.
    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::from([(SEQUENCE.to_owned(), self.sequence.to_string())]);
        if let Some(voters) = &self.voters {
            let voters: Vec<String> = voters.iter().map(ToString::to_string).collect();
            annotations.insert(VOTERS.to_owned(), voters.join(","));
        }
        if let Some(version) = self.version {
            annotations.insert(VERSION.to_owned(), version.to_string());
        }
        annotations
    }
}
