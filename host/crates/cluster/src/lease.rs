//! Reads the lease by which hosts elect the writer, with a client of its own: renewals must not wait behind watches.

use std::time::Duration;

use innkeeper_model::{Gvk, Lease, LeaseRecord, Resource, ResourceVersion, Scope};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::{error::Error, options::Options, stored::Malformed, wire::Wire};

/// Reads one lease.
pub struct LeaseReader {
    wire: Wire,
    resource: Resource,
    namespace: String,
    name: String,
}

impl LeaseReader {
    /// Creates a reader with a client that is used for nothing else; `timeout` bounds each read.
    pub fn new(client: kube::Client, timeout: Duration, namespace: &str, name: &str) -> Self {
        let options = Options {
            request_timeout: timeout,
            ..Options::new(0)
        };
        Self {
            wire: Wire::new(client, options),
            resource: Resource {
                kind: Gvk::new("coordination.k8s.io", "v1", "Lease"),
                plural: "leases".into(),
                scope: Scope::Namespaced,
            },
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the lease from a quorum; none if it does not exist.
    pub async fn read(&self) -> Result<Option<Lease>, Error> {
        let kind = || self.resource.kind.clone();
        let name = || self.name.clone();
        let text = self
            .wire
            .object(&self.resource, Some(&self.namespace), &self.name)
            .await
            .map_err(|source| Error::Read {
                kind: kind(),
                name: name(),
                source,
            })?;
        text.map(|text| parse(&text))
            .transpose()
            .map_err(|source| Error::Understand {
                kind: kind(),
                name: name(),
                source,
            })
    }
}

/// Parses a lease. A missing or senseless field counts as unset, because any user with access can edit a lease.
fn parse(json: &str) -> Result<Lease, Malformed> {
    #[derive(Deserialize)]
    struct LeaseObject {
        metadata: LeaseMetadata,
        #[serde(default)]
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LeaseMetadata {
        resource_version: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec {
        holder_identity: Option<String>,
        lease_duration_seconds: Option<i64>,
        #[serde(deserialize_with = "time")]
        acquire_time: Option<Timestamp>,
        #[serde(deserialize_with = "time")]
        renew_time: Option<Timestamp>,
        lease_transitions: Option<i64>,
    }
    fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        Ok(text.and_then(|text| text.parse().ok()))
    }
    let LeaseObject { metadata, spec } = serde_json::from_str(json).map_err(Malformed::Parse)?;
    let version = metadata.resource_version;
    let version = version.parse().map_err(|_| Malformed::Version(version))?;
    let number = |number: Option<i64>| u32::try_from(number.unwrap_or_default());
    Ok(Lease {
        version: ResourceVersion(version),
        record: LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration_s: number(spec.lease_duration_seconds).unwrap_or_default(),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: number(spec.lease_transitions).unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_lease_of_client_go() {
        let lease = parse(
            r#"{"kind": "Lease", "metadata": {"name": "a", "resourceVersion": "7"}, "spec": {
                "holderIdentity": "a_1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
                "acquireTime": "2026-01-02T03:04:05.000006Z", "renewTime": "2026-01-02T03:05:05.123456Z"
            }}"#,
        );
        let Lease { version, record } = lease.unwrap();
        assert_eq!(version, ResourceVersion(7));
        assert_eq!((&*record.holder, record.duration_s), ("a_1", 15));
        assert_eq!(record.transitions, 3);
        let acquired = record.acquired.unwrap();
        assert_eq!(acquired.to_string(), "2026-01-02T03:04:05.000006Z");
        assert!(record.renewed.unwrap() > acquired);
    }

    #[test]
    fn l2_reads_a_lease_that_a_user_has_edited() {
        for spec in [
            "{}",
            r#"{"holderIdentity": null, "leaseDurationSeconds": -1, "renewTime": "soon"}"#,
        ] {
            let json = format!(r#"{{"metadata": {{"resourceVersion": "7"}}, "spec": {spec}}}"#);
            assert_eq!(parse(&json).unwrap().record, LeaseRecord::default());
        }
        let bare = parse(r#"{"metadata": {"resourceVersion": "7"}}"#).unwrap();
        assert_eq!(bare.record, LeaseRecord::default());
        assert!(parse(r#"{"metadata": {"resourceVersion": "x"}}"#).is_err());
        assert!(parse("[]").is_err());
    }
}
