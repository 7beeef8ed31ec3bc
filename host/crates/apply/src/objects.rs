//! The few objects that the host itself owns: namespace, hash key, inventory, and the plugins' definitions.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_model::{PluginName, Resource, ResourceVersion, Uid};
use innkeeper_plan::DefinitionWrite;
use serde_json::{Map, Value, json};

use super::{
    Error, ErrorKind, Writer, Written,
    request::{Address, built_in},
};

/// The field manager for objects that belong to no plugin.
pub const MANAGER: &str = "innkeeper";

impl Writer {
    /// Creates a namespace; an existing one stays unchanged.
    pub async fn namespace(&self, name: &str) -> Result<(), Error> {
        let resource = built_in("", "v1", "Namespace", "namespaces");
        let address = Address::new(&resource, None, name);
        match self
            .exchange(address.create(MANAGER, &address.body()))
            .await
        {
            Err(error) if error.kind != ErrorKind::Exists => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates a Secret.
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
        let resource = built_in("", "v1", "Secret", "secrets");
        let address = Address::new(&resource, Some(namespace), name);
        let data = data
            .iter()
            .map(|(key, value)| (key.clone(), STANDARD.encode(value).into()));
        let mut body = address.body();
        body.insert("data".to_owned(), Value::Object(data.collect()));
        self.exchange(address.create(MANAGER, &body)).await
    }

    /// Writes data into a ConfigMap that a plugin shares with others: each owns the keys that it states.
    ///
    /// Replaces exactly the `observed` version; creates the ConfigMap if there is none.
    pub async fn inventory(
        &self,
        namespace: &str,
        name: &str,
        plugin: &PluginName,
        data: &BTreeMap<String, String>,
        observed: Option<&(Uid, ResourceVersion)>,
    ) -> Result<Written, Error> {
        let resource = built_in("", "v1", "ConfigMap", "configmaps");
        let address = Address::new(&resource, Some(namespace), name);
        let mut body = address.body();
        body.insert("data".to_owned(), json!(data));
        let manager = plugin.host_manager();
        // Bound, because another host may have recorded kinds of the same plugin since.
        let request = match observed {
            Some((uid, version)) => address.update(&manager, &body, uid, *version),
            None => address.create(&manager, &body),
        };
        self.exchange(request).await
    }

    /// Applies a CustomResourceDefinition as it was planned.
    pub async fn crd(
        &self,
        plugin: &PluginName,
        write: &DefinitionWrite,
    ) -> Result<Written, Error> {
        let kind = "CustomResourceDefinition";
        let plural = "customresourcedefinitions";
        let resource = built_in("apiextensions.k8s.io", "v1", kind, plural);
        let address = Address::new(&resource, None, &write.name);
        let manager = plugin.field_manager();
        let body = &write.body;
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
        let field = |name: &str| body.get("metadata")?.get(name)?.as_str();
        let name = field("name").unwrap_or_default();
        let address = Address::new(resource, field("namespace"), name);
        self.exchange(address.apply(manager, body)).await
    }
}
