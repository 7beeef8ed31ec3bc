//! The host in a cluster: its namespace, its Deployment, the policy for grants, and the objects for its metrics.

use innkeeper_model::yaml;
use serde_json::{Map, Value, json};

use super::{ENCODE, Granted, ManifestFile};
use crate::{
    config::{Definitions, Exit, ManifestsArgs, lease_name},
    failure::{Failure, OrFail as _},
};

/// The name of the product, and the default name of a host.
pub(super) const NAME: &str = "innkeeper";

/// Returns the labels of all objects of the host.
pub(super) fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

/// A template of a file: `${PLACE}` stands for a value in JSON, which is YAML as well.
macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("templates/", $name)))
    };
}

/// A file name and its template.
pub(super) type Template = (&'static str, &'static str);

pub(super) const NAMESPACE: Template = template!("namespace.yaml");
pub(super) const GRANT_POLICY: Template = template!("grant-policy.yaml");
pub(super) const DEPLOYMENT: Template = template!("deployment.yaml");
pub(super) const METRICS: Template = template!("metrics.yaml");
pub(super) const NETWORK_POLICY: Template = template!("network-policy.yaml");
pub(super) const SERVICE_MONITOR: Template = template!("service-monitor.yaml");

/// Returns the file of a template.
pub(super) fn file(
    (path, template): Template,
    plugins: &[Granted<'_>],
    args: &ManifestsArgs,
) -> Result<ManifestFile, Failure> {
    let values = [
        ("${NAME}", json!(args.name)),
        ("${NAMESPACE}", json!(args.namespace)),
        ("${METRICS}", json!(format!("{}-metrics", args.name))),
        ("${LABELS}", args.labels()),
        ("${GRANTS}", json!(grants_name(args))),
        ("${ARGUMENTS}", json!(arguments(plugins, args))),
        ("${IMAGE}", json!(args.image)),
    ];
    let text = values
        .iter()
        .fold(template.to_owned(), |text, (place, value)| {
            text.replace(place, &value.to_string())
        });
    let documents = yaml::read(&text).or_fail(Exit::Failure, ENCODE)?;
    Ok(ManifestFile::new(path, documents))
}

/// Returns the ConfigMap with the grants of the plugins in the image; the Deployment mounts it.
pub(super) fn grants(plugins: &[Granted<'_>], args: &ManifestsArgs) -> Result<Value, Failure> {
    let mut files = Map::new();
    for plugin in plugins {
        files.insert(grants_file(plugin), plugin.file()?.into());
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": grants_name(args), "namespace": args.namespace, "labels": args.labels(),
        },
        "data": files,
    }))
}

fn grants_name(args: &ManifestsArgs) -> String {
    format!("{}-grants", args.name)
}

fn grants_file(plugin: &Granted<'_>) -> String {
    format!("{}.yaml", plugin.manifest.name)
}

/// Returns the arguments of a host with the plugins in its image's directory `/plugins`, or with Plugin resources.
fn arguments(plugins: &[Granted<'_>], args: &ManifestsArgs) -> Vec<String> {
    let mut arguments = vec!["run".to_owned()];
    let mut add = |flag: &str, value: &str| arguments.extend([flag.to_owned(), value.to_owned()]);
    let selector = args
        .resources()
        .and_then(|resources| resources.selector.as_ref());
    if args.resources().is_none() {
        add("--plugin-dir", "/plugins");
        for plugin in plugins {
            let file = grants_file(plugin);
            add(
                "--grants",
                &format!("{}=/grants/{file}", plugin.manifest.name),
            );
        }
    }
    if let Some(selector) = selector {
        add("--plugin-selector", &selector.to_string());
    }
    add("--cache-dir", "/cache");
    add("--admin-address", "0.0.0.0:8080");
    let namespaces = args.namespaces.as_deref();
    if let Some(namespaces) = namespaces {
        add("--namespaces", &namespaces.join(","));
    }
    if args.crds == Definitions::Ignore {
        add("--crds", "ignore");
    }
    if lease_name(namespaces, selector) != args.name {
        // With a fixed name, old and new Pods share the lease also while an update changes namespaces or selector.
        add("--lease-name", &args.name);
    }
    arguments
}
