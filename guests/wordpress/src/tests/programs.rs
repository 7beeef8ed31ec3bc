//! Runs the Pods' scripts with real programs, in namespaces like a container's: with its user and variables, without
//! capabilities, and with volumes as the kubelet mounts them.
//!
//! These tests need root. A test program replaces the image's entrypoint.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child as Process, Command, Stdio, id},
    sync::atomic::{AtomicUsize, Ordering},
    thread::sleep,
    time::Instant,
};

use serde_json::{Value, json};

use super::{first, pod};

mod database;
mod http;

/// At how many moments a first start is killed.
fn moments() -> u32 {
    if is_full() { 20 } else { 3 }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the switch of tests/full for all tests"
)]
fn is_full() -> bool {
    std::env::var("INNKEEPER_FULL").as_deref() == Ok("1")
}

/// A container with separate mounts, processes and network.
struct Container {
    root: PathBuf,
    user: u32,
    spec: Value,
    /// The image's root directory; this machine's when absent.
    image: Option<PathBuf>,
}

impl Container {
    /// A container of the site's Pods; `None` where tests cannot create namespaces.
    fn new(workload: &str, list: &str, user: u32) -> Option<Self> {
        Self::for_pod(&pod(&first(&json!({})), workload), list, user)
    }

    fn for_pod(pod: &Value, list: &str, user: u32) -> Option<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let namespaces = Command::new("unshare")
            .args(["--mount", "--pid", "--net", "--fork", "true"])
            .status();
        if !namespaces.is_ok_and(|status| status.success()) {
            assert!(
                !is_full(),
                "the test needs root, and a kernel that lets it make namespaces"
            );
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Not below TMPDIR, which another user may not enter.
        let root = PathBuf::from("/tmp").join(format!("innkeeper-wordpress-{}-{number}", id()));
        let container = Self {
            root,
            user,
            spec: pod["spec"][list][0].clone(),
            image: None,
        };
        fs::create_dir_all(container.root.join("bin")).unwrap();
        fs::write(container.root.join("termination-log"), "").unwrap();
        let writable = fs::Permissions::from_mode(0o666);
        fs::set_permissions(container.root.join("termination-log"), writable).unwrap();
        container.empty();
        Some(container)
    }

    /// Recreates the volumes, owned by root and the Pod's group.
    fn empty(&self) {
        for (volume, _) in self.mounts() {
            fs::remove_dir_all(self.root.join(&volume)).ok();
            let directory = self.root.join(&volume);
            fs::create_dir_all(&directory).unwrap();
            chown(&directory, Some(0), Some(self.user)).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
        }
    }

    /// Each volume's directory, and where the container mounts it.
    fn mounts(&self) -> Vec<(String, String)> {
        let mounts = self.spec["volumeMounts"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        mounts
            .map(|mount| {
                let volume = text(&mount["name"]) + "-" + &text(&mount["subPath"]);
                (volume, text(&mount["mountPath"]))
            })
            .collect()
    }

    /// Replaces a program in the image with a script.
    fn program(&self, name: &str, script: &str) {
        let path = self.root.join("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, environment: &[(&str, &str)], image: &[(&Path, &str)]) -> Process {
        let root = self.root.display();
        // Directories that this machine lacks are on an overlay that disappears with the container.
        let overlay = |lower: &str, name: &str, at: &str| {
            format!(
                "mkdir -p {at} /mnt/up{name} /mnt/work{name}; mount -t overlay none {at} \
                 -o lowerdir={lower},upperdir=/mnt/up{name},workdir=/mnt/work{name}"
            )
        };
        let mut lines = vec![
            "set -e; mount -t tmpfs none /mnt; ip link set lo up 2>/dev/null || true".to_owned(),
        ];
        let (at, enter) = if let Some(image) = &self.image {
            lines.push(overlay(&image.display().to_string(), "", "/mnt/image"));
            lines.push("mount --rbind /dev /mnt/image/dev".to_owned());
            ("/mnt/image", "chroot /mnt/image ")
        } else {
            let parents = ["/usr/src", "/var", "/run", "/dev", "/etc"];
            lines.extend(
                parents
                    .map(|directory| overlay(directory, &directory.replace('/', "-"), directory)),
            );
            ("", "")
        };
        // Another path, because a volume may hide this one.
        lines.push(format!(
            "mount -t proc none {at}/proc; mkdir -p {at}/mnt/root; mount --bind {root} {at}/mnt/root\n\
             exec {enter}sh /mnt/root/start \"$@\""
        ));
        fs::write(self.root.join("start"), self.inner(image)).unwrap();
        let script = lines.join("\n");
        // The site's images start their entrypoint.
        let own = json!(["docker-entrypoint.sh"]);
        let command = self.spec.get("command").unwrap_or(&own).as_array().unwrap();
        Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--net",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                &script,
                "sh",
            ])
            .args(command.iter().map(|argument| argument.as_str().unwrap()))
            .env_clear()
            .envs(Self::environment(environment))
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.root.join("log")).unwrap())
            .stderr(fs::File::create(self.root.join("errors")).unwrap())
            .spawn()
            .unwrap()
    }

    /// What runs in the image before the container's command.
    fn inner(&self, image: &[(&Path, &str)]) -> String {
        let image = image
            .iter()
            .map(|(from, to)| (from.display().to_string(), (*to).to_owned()));
        let volumes = self
            .mounts()
            .into_iter()
            .map(|(from, to)| (format!("/mnt/root/{from}"), to));
        let bind = |(from, to)| format!("mkdir -p {to}; mount --bind {from} {to}");
        let mut lines: Vec<String> = image.chain(volumes).map(bind).collect();
        lines.push(format!(
            "set -e; touch /dev/termination-log; mount --bind /mnt/root/termination-log /dev/termination-log\n\
             echo 127.0.0.1 localhost shop-mysql >/etc/hosts\n\
             echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start\n\
             exec setpriv --reuid {0} --regid {0} --clear-groups --no-new-privs --bounding-set -all \"$@\"",
            self.user
        ));
        lines.join("\n")
    }

    fn environment<'a>(additional: &[(&'a str, &'a str)]) -> Vec<(&'a str, String)> {
        let path = "/mnt/root/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        let own = [("PATH", path), ("HOSTNAME", "shop-0".to_owned())];
        let additional = additional
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        own.into_iter().chain(additional).collect()
    }

    /// Runs a probe's command in the container; true if it succeeds.
    fn probe(&self, probe: &str, container: &Process, environment: &[(&str, &str)]) -> bool {
        let command = self.spec[probe]["exec"]["command"]
            .as_array()
            .unwrap()
            .iter()
            .map(|argument| argument.as_str().unwrap());
        self.command(container, command, environment)
            .is_some_and(|mut child| child.status().is_ok_and(|status| status.success()))
    }

    /// A command in the container; `None` once the first process has exited.
    fn command<'a>(
        &self,
        container: &Process,
        command: impl IntoIterator<Item = &'a str>,
        environment: &[(&str, &str)],
    ) -> Option<Command> {
        let first = first_process(container)?;
        let user = self.user.to_string();
        let mut entered = Command::new("nsenter");
        entered
            .args(["--target", &first, "--mount", "--pid", "--net", "--root"])
            .args([
                "setpriv",
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
            ])
            .args(command)
            .env_clear()
            .envs(Self::environment(environment))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Some(entered)
    }

    fn termination_message(&self) -> String {
        fs::read_to_string(self.root.join("termination-log")).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}

/// A container's first process, as the process id on this machine.
fn first_process(container: &Process) -> Option<String> {
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    fs::read_to_string(children)
        .ok()?
        .split_whitespace()
        .next()
        .map(ToOwned::to_owned)
}

/// Kills all of a container's processes at once, as the kernel does when the first one exits.
fn kill(mut container: Process) {
    if let Some(first) = first_process(&container) {
        Command::new("kill")
            .args(["-KILL", &first])
            .status()
            .unwrap();
    } else {
        container.kill().unwrap();
    }
    container.wait().unwrap();
}

/// The files below a directory, with their content.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                paths.push((name, fs::read(path).unwrap()));
            }
        }
    }
    paths.sort();
    paths
}

/// Test files instead of WordPress, in the same number.
fn source(root: &Path) -> PathBuf {
    let source = root.join("source");
    for number in 0..2000 {
        let directory = match number % 8 {
            0 => String::new(),
            1 => "wp-content".to_owned(),
            2 => format!("wp-content/themes/theme-{}", number % 5),
            3 => format!("wp-content/plugins/plugin-{}/inc", number % 3),
            _ => format!("wp-includes/part-{}", number % 20),
        };
        let directory = source.join(directory);
        fs::create_dir_all(&directory).unwrap();
        let text = format!("<?php // {number}\n").repeat(500);
        fs::write(directory.join(format!("file-{number}.php")), text).unwrap();
    }
    fs::write(source.join(".htaccess"), "# rules").unwrap();
    fs::write(source.join("wp-content/plugins/hello.php"), "<?php").unwrap();
    source
}

#[test]
fn a_copy_of_the_core_that_was_cut_off_is_completed() {
    let Some(container) = Container::new("web", "initContainers", 33) else {
        return;
    };
    let source = source(&container.root);
    let image = [(&*source, "/usr/src/wordpress")];
    let html = |name: &str| container.root.join("html-").join(name);
    let content = container.root.join("code-wp-content");
    let copied = || {
        let mut tree = files(&container.root.join("html-"));
        let content = files(&content).into_iter();
        tree.extend(content.map(|(name, text)| (Path::new("wp-content").join(name), text)));
        tree.sort();
        tree
    };
    let run = || container.start(&[], &image).wait().unwrap().success();
    let whole = files(&source);
    let start = Instant::now();
    assert!(
        run(),
        "{}",
        fs::read_to_string(container.root.join("errors")).unwrap()
    );
    let time = start.elapsed();
    assert!(copied() == whole, "a whole copy lacks files");
    for moment in 0..moments() {
        container.empty();
        let container_process = container.start(&[], &image);
        sleep(time * moment / moments());
        kill(container_process);
        assert!(run());
        assert!(
            copied() == whole,
            "moment {moment}: the second copy lacks files"
        );
    }
    // A truncated core file is rewritten; the site's files stay.
    fs::write(html("file-8.php"), "cut").unwrap();
    fs::write(content.join("themes/theme-2/file-2.php"), "edited").unwrap();
    fs::remove_file(content.join("themes/theme-2/file-42.php")).unwrap();
    fs::create_dir_all(content.join("uploads")).unwrap();
    fs::write(content.join("uploads/photo"), "photo").unwrap();
    assert!(run());
    assert_eq!(
        fs::read(html("file-8.php")).unwrap(),
        fs::read(source.join("file-8.php")).unwrap()
    );
    let read = |name: &str| fs::read_to_string(content.join(name)).unwrap();
    assert_eq!(read("themes/theme-2/file-2.php"), "edited");
    assert!(!content.join("themes/theme-2/file-42.php").exists());
    assert_eq!(read("uploads/photo"), "photo");
    // An image without the files brings another mechanism.
    container.empty();
    assert!(container.start(&[], &[]).wait().unwrap().success());
    assert_eq!(copied(), []);
}
