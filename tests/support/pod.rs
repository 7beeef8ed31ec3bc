//! A Deployment's Pod without a kubelet: the image files as a read-only root, the Deployment's user, arguments,
//! environment and volumes, the container's memory limit, and an account token.
//!
//! It needs the right to mount: root, or unprivileged user namespaces.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::process::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    ControlPlane,
    manifest::{at, parse},
    process::{Running, bound_with_log, path_from_env, spawn_bound},
};

const ADMIN: &str = "--admin-address=127.0.0.1:0";
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";

/// Mounts the volumes and starts the program: script ROOT USER PLACES... -- PROGRAM ARGUMENTS..., where a place is a
/// directory and its mount point in the root.
const MOUNT: &str = r#"
set -eu
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root/$2"
    shift 2
done
shift
mount -o remount,bind,ro "$root"
if [ "${INNKEEPER_TEST_NESTED:-}" = 1 ]; then
    exec unshare --user --map-user="$user" --map-group="$user" --root="$root" "$@"
fi
exec setpriv --no-new-privs chroot --userspec="$user:$user" --groups="$user" "$root" "$@"
"#;

/// An unpacked image; dropping the value removes the files.
#[derive(Debug)]
pub struct Image {
    directory: TempDir,
    entrypoint: String,
    user: u32,
}

impl Image {
    /// Unpacks the only image in an OCI layout.
    pub fn unpack(layout: &Path) -> Result<Self> {
        let read = |digest: &Value| -> Result<Value> {
            let text = fs::read(blob(layout, digest)?)?;
            Ok(serde_json::from_slice(&text)?)
        };
        let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
        let manifest = read(&index["manifests"][0]["digest"])?;
        let config = read(&manifest["config"]["digest"])?;
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-image-")
            .tempdir()?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        for layer in manifest["layers"].as_array().into_iter().flatten() {
            let status = Command::new("tar")
                .arg("-xf")
                .arg(blob(layout, &layer["digest"])?)
                .arg("-C")
                .arg(directory.path())
                .status()?;
            ensure!(status.success(), "tar ended with {status}");
        }
        let text = |pointer: &str| at(&config, pointer).as_str().unwrap_or_default();
        let (user, _) = text("/config/User").split_once(':').unwrap_or_default();
        Ok(Self {
            entrypoint: text("/config/Entrypoint/0").to_owned(),
            user: user.parse().context("the image has no user by number")?,
            directory,
        })
    }

    /// The directory with the files.
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// The image's user id.
    pub fn user(&self) -> u32 {
        self.user
    }
}

fn blob(layout: &Path, digest: &Value) -> Result<PathBuf> {
    let digest = digest.as_str().context("a descriptor has no digest")?;
    let (algorithm, hash) = digest.split_once(':').context("a digest has no colon")?;
    Ok(layout.join("blobs").join(algorithm).join(hash))
}

/// A running Pod; dropping the value kills it.
#[derive(Debug)]
pub struct Pod {
    // Dropped first: the process must end before its directory is removed.
    process: Running,
    directory: TempDir,
}

impl Pod {
    /// Starts the first container of a Deployment in the API server.
    pub fn start(plane: &ControlPlane, image: &Image, deployment: &Value) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("innkeeper-pod-")
            .tempdir()?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        let spec = at(deployment, "/spec/template/spec");
        let container = &spec["containers"][0];
        let user = spec["securityContext"]["runAsUser"].as_u64();
        ensure!(user == Some(image.user.into()), "the Pod runs as {user:?}");
        ensure!(
            container["securityContext"]["readOnlyRootFilesystem"] == true,
            "the root of the container is writable"
        );
        let mut places = vec![
            (
                account(plane, deployment, directory.path())?,
                ACCOUNT.to_owned(),
            ),
            (
                cgroup(container, directory.path())?,
                "sys/fs/cgroup".to_owned(),
            ),
        ];
        places.extend(volumes(plane, deployment, directory.path())?);
        for point in places
            .iter()
            .map(|(_, point)| &**point)
            .chain(["dev", "proc"])
        {
            // A container runtime creates missing mount points too.
            fs::create_dir_all(image.root().join(point))?;
        }
        let log = directory.path().join("log");
        let mut command = bound_with_log(Path::new("unshare"), &log)?;
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
            command.env("INNKEEPER_TEST_NESTED", "1");
        }
        command.envs(environment(plane, deployment)?);
        command.args(["--mount", "sh", "-c", MOUNT, "sh"]);
        command.arg(image.root()).arg(image.user.to_string());
        for (from, point) in &places {
            command.arg(from).arg(point);
        }
        command.arg("--").arg(&image.entrypoint);
        for argument in container["args"].as_array().into_iter().flatten() {
            let argument = argument.as_str().unwrap_or_default();
            // All Pods share the machine's addresses.
            let is_admin = argument.starts_with("--admin-address=");
            command.arg(if is_admin { ADMIN } else { argument });
        }
        let process = spawn_bound(command)?;
        Ok(Self { process, directory })
    }

    /// Returns the log so far.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.directory.path().join("log"))?)
    }

    /// The container process.
    pub fn process(&mut self) -> &mut Running {
        &mut self.process
    }
}

/// Creates the service account directory with a token, as the kubelet does.
fn account(plane: &ControlPlane, deployment: &Value, directory: &Path) -> Result<PathBuf> {
    let namespace = text(deployment, "/metadata/namespace")?;
    let name = text(deployment, "/spec/template/spec/serviceAccountName")?;
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE")?)
        .args(["kubectl", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .args(["create", "token", name, "--namespace", namespace])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let account = directory.join("account");
    fs::create_dir(&account)?;
    fs::write(account.join("token"), output.stdout.trim_ascii())?;
    fs::write(account.join("namespace"), namespace)?;
    let cluster = cluster(plane)?;
    let authority = text(&cluster, "/certificate-authority-data")?;
    fs::write(account.join("ca.crt"), STANDARD.decode(authority)?)?;
    Ok(account)
}

fn cluster(plane: &ControlPlane) -> Result<Value> {
    let kubeconfig = parse(&fs::read_to_string(plane.kubeconfig())?)?.remove(0);
    Ok(kubeconfig["clusters"][0]["cluster"].clone())
}

/// Creates a directory that looks like the container's cgroup.
fn cgroup(container: &Value, directory: &Path) -> Result<PathBuf> {
    let limit = text(container, "/resources/limits/memory")?;
    let unit = [("Gi", 30), ("Mi", 20), ("Ki", 10)]
        .iter()
        .find(|(unit, _)| limit.ends_with(unit));
    let (unit, shift) = unit.with_context(|| format!("the limit {limit} has no known unit"))?;
    let bytes = limit.trim_end_matches(unit).parse::<u64>()? << shift;
    let cgroup = directory.join("cgroup");
    fs::create_dir(&cgroup)?;
    fs::write(cgroup.join("memory.max"), format!("{bytes}\n"))?;
    Ok(cgroup)
}

/// Creates the volumes; returns each with a mount point.
fn volumes(
    plane: &ControlPlane,
    deployment: &Value,
    directory: &Path,
) -> Result<Vec<(PathBuf, String)>> {
    let spec = at(deployment, "/spec/template/spec");
    let group = spec["securityContext"]["fsGroup"].as_u64();
    let group = u32::try_from(group.context("the Pod has no fsGroup")?)?;
    let mut places = Vec::new();
    for mount in spec["containers"][0]["volumeMounts"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let name = text(mount, "/name")?;
        let volume = spec["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|volume| volume["name"] == name)
            .with_context(|| format!("there is no volume {name}"))?;
        let path = directory.join(format!("volume-{name}"));
        fs::create_dir(&path)?;
        if let Some(config_map) = volume["configMap"]["name"].as_str() {
            let namespace = text(deployment, "/metadata/namespace")?;
            let kind = crate::user::Kind::new("v1", "ConfigMap", namespace);
            let object = plane.user().get(kind, config_map)?.unwrap_or_default();
            for (key, value) in object["data"].as_object().into_iter().flatten() {
                fs::write(path.join(key), value.as_str().unwrap_or_default())?;
            }
        } else {
            // For an emptyDir, root stays the owner and the Pod's group may write, as with the kubelet.
            if geteuid().is_root() {
                chown(&path, None, Some(group))?;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o2777))?;
        }
        let point = text(mount, "/mountPath")?.trim_start_matches('/');
        places.push((path, point.to_owned()));
    }
    Ok(places)
}

/// The container's environment variables, and those that the kubelet adds.
fn environment(plane: &ControlPlane, deployment: &Value) -> Result<Vec<(String, String)>> {
    let server = text(&cluster(plane)?, "/server")?.to_owned();
    let address = server.trim_start_matches("https://");
    let (host, port) = address.split_once(':').context("the server has no port")?;
    let name = text(deployment, "/metadata/name")?;
    let mut environment = vec![
        ("KUBERNETES_SERVICE_HOST".to_owned(), host.to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), port.to_owned()),
        ("HOSTNAME".to_owned(), format!("{name}-0")),
    ];
    let variables = at(deployment, "/spec/template/spec/containers/0/env");
    for variable in variables.as_array().into_iter().flatten() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.namespace") => text(deployment, "/metadata/namespace")?.to_owned(),
            Some("metadata.name") => format!("{name}-0"),
            Some(path) => bail!("the field {path} is unknown"),
            None => text(variable, "/value")?.to_owned(),
        };
        environment.push((text(variable, "/name")?.to_owned(), value));
    }
    Ok(environment)
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    at(object, pointer)
        .as_str()
        .with_context(|| format!("there is no {pointer} in {object}"))
}
