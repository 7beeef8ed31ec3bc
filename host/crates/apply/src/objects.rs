//! The few objects that are the host's own: its namespace, its hash key, its inventory, and the definitions that
//! plugins bring.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::{Gvk, PluginName, Resource, Scope};
use innkeeper_plan::crd::CrdWrite;
use serde_json::{Map, Value, json};

use super::{Error, ErrorKind, Writer, Written, request::Address};

/// The field manager of objects that belong to no plugin.
pub const MANAGER: &str = "innkeeper";

fn core_resource(kind: &str, plural: &str, scope: Scope) -> Resource {
    Resource {
        kind: Gvk::new("", "v1", kind),
        plural: plural.into(),
        scope,
    }
}

impl Writer {
    /// Makes a namespace; one that exists is left as it is.
    pub async fn namespace(&self, name: &str) -> Result<(), Error> {
        let resource = core_resource("Namespace", "namespaces", Scope::Cluster);
        let address = Address {
            resource: &resource,
            namespace: None,
            name,
        };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match self.exchange(address.create(MANAGER, object(body))).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == ErrorKind::Exists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes a Secret.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exists`] if there is one; it stays unchanged.
    pub async fn secret(
        &self,
        namespace: &str,
        name: &str,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Written, Error> {
        let resource = core_resource("Secret", "secrets", Scope::Namespaced);
        let address = Address {
            resource: &resource,
            namespace: Some(namespace),
            name,
        };
        let data: BTreeMap<&str, String> = data
            .iter()
            .map(|(key, value)| (key.as_str(), STANDARD.encode(value)))
            .collect();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": data,
        });
        self.exchange(address.create(MANAGER, object(body))).await
    }

    /// Writes the data of a ConfigMap that a plugin shares with others: each owns the keys that it states.
    pub async fn inventory(
        &self,
        namespace: &str,
        name: &str,
        plugin: &PluginName,
        data: &BTreeMap<String, String>,
    ) -> Result<Written, Error> {
        let resource = core_resource("ConfigMap", "configmaps", Scope::Namespaced);
        let address = Address {
            resource: &resource,
            namespace: Some(namespace),
            name,
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": data,
        });
        let request = address.apply(&plugin.host_manager(), object(body));
        self.exchange(request).await
    }

    /// Applies a CustomResourceDefinition as it was planned.
    pub async fn crd(&self, plugin: &PluginName, write: &CrdWrite) -> Result<Written, Error> {
        let resource = Resource {
            kind: Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            plural: "customresourcedefinitions".into(),
            scope: Scope::Cluster,
        };
        let address = Address {
            resource: &resource,
            namespace: None,
            name: &write.name,
        };
        let manager = plugin.field_manager();
        let body = write.body.clone();
        let request = match &write.replaces {
            Some((uid, version)) => address.update(&manager, body, uid, *version),
            None => address.create(&manager, body),
        };
        self.exchange(request).await
    }

    /// Applies an object as a user would, whether it exists or not.
    pub async fn object(
        &self,
        manager: &str,
        body: &Map<String, Value>,
        resource: &Resource,
    ) -> Result<Written, Error> {
        let field = |name: &str| {
            let metadata = body.get("metadata");
            metadata
                .and_then(|metadata| metadata.get(name))
                .and_then(Value::as_str)
        };
        let address = Address {
            resource,
            namespace: field("namespace"),
            name: field("name").unwrap_or_default(),
        };
        self.exchange(address.apply(manager, body.clone())).await
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
