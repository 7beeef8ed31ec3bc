//! The CustomResourceDefinitions of the plugins, and the host's own.

use std::collections::BTreeMap;

use innkeeper_model::{LABEL_PLUGIN, Manifest};
use innkeeper_plugin_controller::resource;
use serde_json::{Value, json};

use super::host::labels;

/// Returns those of the plugins by name, with the label by which the host recognizes them.
///
/// If two plugins have a definition of the same name, the first plugin's counts, as in the host.
pub(super) fn all(manifests: &[&Manifest]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for manifest in manifests {
        for crd in &manifest.crds {
            let mut crd = Value::Object(crd.clone());
            let Some(name) = crd["metadata"]["name"].as_str().map(str::to_owned) else {
                continue;
            };
            if !crd["metadata"]["labels"].is_object() {
                crd["metadata"]["labels"] = json!({});
            }
            crd["metadata"]["labels"][LABEL_PLUGIN] = manifest.name.as_str().into();
            all.entry(name).or_insert(crd);
        }
    }
    all
}

/// Returns those of the plugins and the host's own, which no plugin can replace.
pub(super) fn with_own(of_plugins: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut own = Value::Object(resource::crd());
    own["metadata"]["labels"] = labels();
    let mut all = of_plugins.clone();
    all.insert(resource::CRD_NAME.to_owned(), own);
    all
}
