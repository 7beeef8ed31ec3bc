//! The Lease that decides which host writes, as stored in the cluster.

use std::collections::BTreeMap;

use innkeeper_model::{ANNOTATION_SHARDS, Object, ResourceVersion, Shards};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;

/// The label on hosts' leases, key and value, which the chart gives a host's other objects.
pub const LABEL_LEASE: (&str, &str) = ("app.kubernetes.io/name", "innkeeper");

/// A lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The version that the next write must replace; the API server rejects the write if it is no longer current.
    pub version: ResourceVersion,
    /// The content.
    pub record: LeaseRecord,
    /// The number of shards that its last holder has.
    pub shards: Shards,
}

impl Lease {
    /// Returns the lease with this version and this JSON text.
    pub fn from_json(version: ResourceVersion, json: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Stored {
            #[serde(deserialize_with = "lenient")]
            metadata: Metadata,
            #[serde(deserialize_with = "lenient")]
            spec: LeaseRecord,
        }

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            annotations: BTreeMap<String, String>,
        }

        // An edit must not stop the election: an unreadable lease counts as one without a holder.
        let stored: Stored = serde_json::from_str(json).unwrap_or_default();
        let shards = stored.metadata.annotations.get(ANNOTATION_SHARDS);
        Self {
            version,
            record: stored.spec,
            shards: Shards::from_annotation(shards.map(String::as_str)),
        }
    }
}

impl From<&Object> for Lease {
    fn from(object: &Object) -> Self {
        Self::from_json(object.resource_version, &object.json)
    }
}

/// A lease's content; in JSON, the `spec`.
///
/// A missing or senseless field counts as unset, because any user with access can edit a lease.
/// Each time comes from the writing host's clock. The times inform the user only: no host decides by them,
/// because hosts' clocks differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaseRecord {
    /// The holder; empty if the lease is free.
    #[serde(rename = "holderIdentity", deserialize_with = "lenient")]
    pub holder: String,
    /// The time for which each renewal holds the lease, in seconds.
    #[serde(rename = "leaseDurationSeconds", deserialize_with = "lenient")]
    pub duration_s: u32,
    /// The time at which the holder acquired it.
    #[serde(rename = "acquireTime", with = "micros")]
    pub acquired: Option<Timestamp>,
    /// The last renewal.
    #[serde(rename = "renewTime", with = "micros")]
    pub renewed: Option<Timestamp>,
    /// The changes from one holder to another.
    #[serde(rename = "leaseTransitions", deserialize_with = "lenient")]
    pub transitions: u32,
}

/// Reads a field, or the default if it has another type.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Times as Kubernetes' `MicroTime`.
mod micros {
    use super::{Deserializer, Serialize, Serializer, Timestamp, lenient};

    pub(super) fn serialize<S: Serializer>(
        time: &(impl Into<Option<Timestamp>> + Copy),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let time: Option<Timestamp> = (*time).into();
        // The API server parses a MicroTime with exactly six decimals.
        time.map(|time| format!("{time:.6}")).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let text: String = lenient(deserializer)?;
        Ok(text.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(json: &str) -> LeaseRecord {
        Lease::from_json(ResourceVersion(7), json).record
    }

    #[test]
    fn reads_and_writes_a_lease_of_client_go() {
        let spec = json!({
            "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-01-02T03:04:05.000006Z", "renewTime": "2026-01-02T03:05:05.123456Z",
        });
        let record = record(&json!({"kind": "Lease", "spec": spec}).to_string());
        assert_eq!((&*record.holder, record.duration_s), ("a_1", 15));
        assert_eq!(record.transitions, 3);
        let acquired = record.acquired.unwrap();
        assert_eq!(acquired.to_string(), "2026-01-02T03:04:05.000006Z");
        assert!(record.renewed.unwrap() > acquired);
        assert_eq!(json!(record), spec);
    }

    #[test]
    fn reads_a_lease_that_a_user_has_edited() {
        for spec in [
            "null",
            "[]",
            "{}",
            r#"{"holderIdentity": null, "leaseDurationSeconds": -1, "renewTime": "soon", "acquireTime": 5}"#,
        ] {
            let json = format!(r#"{{"metadata": {{"resourceVersion": "7"}}, "spec": {spec}}}"#);
            assert_eq!(record(&json), LeaseRecord::default(), "{spec}");
        }
        assert_eq!(record("{}"), LeaseRecord::default());
    }
}
