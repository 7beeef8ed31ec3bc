//! The record: the whole state of bootstrap and replacements, in the ConfigMap `<name>-cluster-state`.

use std::collections::{BTreeMap, BTreeSet};

use innkeeper_kit::{partial, prelude::*};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::{cluster::Cluster, version::Version};

const MEMBERS: &str = "ETCD_INITIAL_CLUSTER";
const STATE: &str = "ETCD_INITIAL_CLUSTER_STATE";
const TOKEN: &str = "ETCD_INITIAL_CLUSTER_TOKEN";
/// The annotation on the ConfigMap with the record: the number of operations that have ended.
const SEQUENCE: &str = "etcd.ydzs.io/sequence";
/// The annotation on the ConfigMap with the record: the etcd version with which all members were last ready.
const VERSION: &str = "etcd.ydzs.io/version";
/// The annotation on the ConfigMap with the record: the progress of replacements, by ordinal.
const REPLACING: &str = "etcd.ydzs.io/replacing";
/// The record's annotations.
const ANNOTATIONS: [&str; 3] = [SEQUENCE, VERSION, REPLACING];
/// The prefix of keys with the UID of the Pod that may start a member without data; the init container reads them.
const ADMIT: &str = "ADMIT_";

/// Decisions about the cluster's membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// All members' ordinals.
    pub(crate) members: BTreeSet<i32>,
    /// The cluster is formed; never becomes false again.
    pub(crate) formed: bool,
    /// etcd's initial cluster token, part of the cluster ID.
    pub(crate) token: String,
    /// The number of operations that have ended.
    pub(crate) sequence: u64,
    /// The UIDs of the Pods that may start a member without data, by ordinal. An etcd identity belongs to one Pod: a
    /// later Pod without data must not vote under it, because the earlier one may have voted.
    pub(crate) admitted: BTreeMap<i32, String>,
    /// The progress of replacements, by ordinal.
    pub(crate) replacing: BTreeMap<i32, Replacement>,
    /// The version with which all members were last ready; `None` while it is unknown.
    pub(crate) version: Option<Version>,
}

/// The progress of replacing a member that lost the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// etcd has the member under this ID. Next: removed, or none if the member becomes ready after all.
    Lost(String),
    /// etcd has no such member. Next: added.
    Removed,
    /// etcd has the member under a new ID that no Pod has used. Next: none, once a Pod is admitted.
    Added,
}

impl Replacement {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "removed" => Some(Self::Removed),
            "added" => Some(Self::Added),
            _ => text
                .strip_prefix("lost:")
                .and_then(member_id)
                .map(Self::Lost),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Lost(id) => format!("lost:{id}"),
            Self::Removed => "removed".to_owned(),
            Self::Added => "added".to_owned(),
        }
    }
}

/// A member ID as etcd writes it; `None` for any other text.
pub(crate) fn member_id(text: &str) -> Option<String> {
    let is_id = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}

impl Record {
    /// The record of a cluster that has never run.
    pub(crate) fn founding(cluster: &Cluster<'_>, members: BTreeSet<i32>) -> Self {
        Self {
            members,
            formed: false,
            // The UID gives a recreated cluster another cluster ID, so members of the old one cannot join.
            token: format!("{}-{}-{}", cluster.namespace, cluster.name, cluster.uid),
            sequence: 0,
            admitted: BTreeMap::new(),
            replacing: BTreeMap::new(),
            version: None,
        }
    }

    /// Reads the record from the observed ConfigMap, as [`parse`](Self::parse) does.
    pub(crate) fn find(cluster: &Cluster<'_>, children: &Children) -> Result<Option<Self>, Fault> {
        let config_map = partial::find(children, &cluster.record(), &ANNOTATIONS, &["/data"])?;
        Ok(config_map.and_then(|config_map| Self::parse(cluster, &config_map)))
    }

    /// Reads the record from a ConfigMap; `None` if it is not this cluster's record.
    pub(crate) fn parse(cluster: &Cluster<'_>, config_map: &ConfigMap) -> Option<Self> {
        let data = config_map.data.as_ref()?;
        let prefix = format!("{}-", cluster.name);
        let ordinal = |entry: &str| -> Option<i32> {
            entry.split('=').next()?.strip_prefix(&prefix)?.parse().ok()
        };
        let members: Option<BTreeSet<i32>> = data
            .get(MEMBERS)?
            .split(',')
            .filter(|part| !part.is_empty())
            .map(ordinal)
            .collect();
        let none = BTreeMap::new();
        let annotations = config_map.metadata.annotations.as_ref().unwrap_or(&none);
        let replacing: BTreeMap<i32, Replacement> = annotations
            .get(REPLACING)
            .into_iter()
            .flat_map(|text| text.split(','))
            .filter_map(|entry| {
                let (ordinal, progress) = entry.split_once('=')?;
                Some((ordinal.parse().ok()?, Replacement::parse(progress)?))
            })
            .collect();
        let replaced = replacing.keys().copied();
        Some(Self {
            // etcd's list lacks the members that were removed.
            members: members?.into_iter().chain(replaced).collect(),
            formed: data.get(STATE).is_some_and(|state| state == "existing"),
            token: data.get(TOKEN)?.clone(),
            sequence: annotations
                .get(SEQUENCE)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
            admitted: data
                .iter()
                .filter_map(|(key, uid)| {
                    Some((key.strip_prefix(ADMIT)?.parse().ok()?, uid.clone()))
                })
                .collect(),
            replacing,
            version: annotations
                .get(VERSION)
                .and_then(|text| Version::parse(text)),
        })
    }

    /// The number of replicas that includes the highest member ordinal.
    pub(crate) fn replicas(&self) -> i32 {
        self.members.last().map_or(0, |top| top + 1)
    }

    /// The ordinals of the members that etcd has.
    pub(crate) fn registered(&self) -> BTreeSet<i32> {
        let is_registered =
            |ordinal: &&i32| self.replacing.get(ordinal) != Some(&Replacement::Removed);
        self.members.iter().filter(is_registered).copied().collect()
    }

    /// The ConfigMap's data, which the members read at every start.
    pub(crate) fn data(&self, cluster: &Cluster<'_>) -> BTreeMap<String, String> {
        let entry = |ordinal: &i32| {
            format!(
                "{}={}",
                cluster.member(*ordinal),
                cluster.peer_url(*ordinal)
            )
        };
        // A member that joins compares the list with that of etcd.
        let members: Vec<String> = self.registered().iter().map(entry).collect();
        let state = if self.formed { "existing" } else { "new" };
        let admitted = self
            .admitted
            .iter()
            .map(|(ordinal, uid)| (format!("{ADMIT}{ordinal}"), uid.clone()));
        [
            (MEMBERS.to_owned(), members.join(",")),
            (STATE.to_owned(), state.to_owned()),
            (TOKEN.to_owned(), self.token.clone()),
        ]
        .into_iter()
        .chain(admitted)
        .collect()
    }

    /// The ConfigMap's annotations, which only the plugin reads.
    pub(crate) fn annotations(&self) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::from([(SEQUENCE.to_owned(), self.sequence.to_string())]);
        if !self.replacing.is_empty() {
            let entry = |(ordinal, progress): (&i32, &Replacement)| {
                format!("{ordinal}={}", progress.text())
            };
            let entries: Vec<String> = self.replacing.iter().map(entry).collect();
            annotations.insert(REPLACING.to_owned(), entries.join(","));
        }
        if let Some(version) = self.version {
            annotations.insert(VERSION.to_owned(), version.to_string());
        }
        annotations
    }
}
