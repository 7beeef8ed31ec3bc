//! Container parts for members and Jobs: user, security context, and busybox for images without a shell.

use innkeeper_kit::pod;
use k8s_openapi::api::core::v1::{Container, SecurityContext};

use crate::cluster::Cluster;

/// The members' user and group ID, the usual `nonroot`. As `fsGroup` it owns the files on the claims.
pub(crate) const USER: i64 = 65532;

/// The security context for all containers.
pub(crate) fn container_security() -> SecurityContext {
    SecurityContext {
        read_only_root_filesystem: Some(true),
        ..pod::container_security()
    }
}

/// The command for a script in an image without a shell.
pub(crate) fn shell(script: &str) -> Vec<String> {
    ["/tools/busybox", "sh", "-ec", script]
        .map(str::to_owned)
        .to_vec()
}

/// The init container that copies busybox for such an image.
pub(crate) fn tools(cluster: &Cluster<'_>) -> Container {
    let copy = ["/bin/busybox", "cp", "/bin/busybox", "/tools/busybox"].map(str::to_owned);
    container(
        cluster,
        "tools",
        &cluster.config.images.tools,
        copy.to_vec(),
    )
}

/// A container with the busybox volume and small requests.
pub(crate) fn container(
    cluster: &Cluster<'_>,
    name: &str,
    image: &str,
    command: Vec<String>,
) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some(cluster.spec.image_pull_policy.into()),
        command: Some(command),
        resources: Some(pod::resources(None, "10m", "32Mi")),
        security_context: Some(container_security()),
        volume_mounts: Some(vec![pod::mount("tools", "/tools")]),
        ..Default::default()
    }
}
