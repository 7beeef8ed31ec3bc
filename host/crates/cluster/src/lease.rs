//! Reads the lease by which hosts elect the writer, with a client of its own: renewals must not wait behind watches.

use std::time::Duration;

use innkeeper_model::{Gvk, Lease, LeaseRecord, Object, Resource, Scope};
use serde_json::Value;

use super::{
    error::Error,
    options::Options,
    stored::{Malformed, parse_version},
    wire::Wire,
};

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
        let (namespace, name) = (Some(&*self.namespace), &*self.name);
        let lease = self
            .wire
            .object(&self.resource, namespace, name, parse)
            .await;
        lease.map_err(|source| Error::of_read(&self.resource.kind, name, source))
    }
}

fn parse(json: &str) -> Result<Lease, Malformed> {
    let lease: Value = serde_json::from_str(json)?;
    let version = lease
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .ok_or(Malformed::Missing("metadata.resourceVersion"))?;
    Ok(Lease {
        version: parse_version(version)?,
        record: record(&lease),
    })
}

/// Returns the content of a lease that was listed.
pub fn lease_of(object: &Object) -> Lease {
    Lease {
        version: object.resource_version,
        // The text of an object is JSON.
        record: record(&serde_json::from_str(&object.json).unwrap_or_default()),
    }
}

/// Reads the content of a lease. A missing or senseless field counts as unset, because any user with access can edit a
/// lease.
fn record(lease: &Value) -> LeaseRecord {
    let spec = |name: &str| lease.get("spec").and_then(|spec| spec.get(name));
    let text = |name: &str| spec(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| {
        let number = spec(name).and_then(Value::as_u64).unwrap_or_default();
        u32::try_from(number).unwrap_or_default()
    };
    LeaseRecord {
        holder: text("holderIdentity").to_owned(),
        duration_s: number("leaseDurationSeconds"),
        acquired: text("acquireTime").parse().ok(),
        renewed: text("renewTime").parse().ok(),
        transitions: number("leaseTransitions"),
    }
}

#[cfg(test)]
mod tests {
    use innkeeper_model::ResourceVersion;

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
    fn reads_a_lease_that_a_user_has_edited() {
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
