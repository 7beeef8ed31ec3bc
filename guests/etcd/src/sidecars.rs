//! Further containers in the Pods of members: those of the user beside etcd, and init containers.
//!
//! They come after the containers of the plugin: an init container that hangs or fails must not hide that a member waits for
//! data, which the first init container tells.

use std::collections::BTreeSet;

use innkeeper_sdk::{json::copied, pod, quantity::check_resources, tenants::check_image};
use k8s_openapi::api::core::v1::{Container, EnvVar, VolumeMount};

use crate::{api::Sidecar, cluster::Cluster};

/// The containers of a field.
pub(crate) fn containers(cluster: &Cluster<'_>, given: &[Sidecar]) -> Vec<Container> {
    let given = given.iter();
    given.map(|it| container(cluster, it)).collect()
}

fn container(cluster: &Cluster<'_>, given: &Sidecar) -> Container {
    let env = given.env.iter().map(|it| EnvVar {
        name: it.name.clone(),
        // The API server does not store an empty text.
        value: Some(it.value.clone()).filter(|value| !value.is_empty()),
        ..Default::default()
    });
    // Written data could start a member under an identity that was used.
    let data = given.data_path.as_deref().map(|path| VolumeMount {
        read_only: Some(true),
        ..pod::mount("data", path)
    });
    let stated = |texts: &[String]| (!texts.is_empty()).then(|| texts.to_vec());
    Container {
        name: given.name.clone(),
        image: Some(given.image.clone()),
        image_pull_policy: Some(cluster.spec.image_pull_policy.into()),
        command: stated(&given.command),
        args: stated(&given.args),
        env: (!given.env.is_empty()).then(|| env.collect()),
        resources: given.resources.as_ref().map(copied),
        // Its root file system stays writable, because its image is unknown.
        security_context: Some(pod::container_security()),
        volume_mounts: data.map(|it| vec![it]),
        ..Default::default()
    }
}

/// Checks the rules that concern other containers and the configuration.
pub(crate) fn check(cluster: &Cluster<'_>) -> Result<(), String> {
    let spec = cluster.spec;
    let mut names = BTreeSet::new();
    for (field, given) in [
        ("initContainers", &spec.init_containers),
        ("sidecars", &spec.sidecars),
    ] {
        for it in given {
            let path = format!("spec.{field}[{}]", it.name);
            if !names.insert(&it.name) {
                return Err(format!(
                    "{path}.name: an init container has this name: take another"
                ));
            }
            check_image(
                &format!("{path}.image"),
                &it.image,
                &cluster.config.tenants.images,
            )?;
            if let Some(resources) = &it.resources {
                check_resources(&format!("{path}.resources"), resources)?;
            }
        }
    }
    Ok(())
}
