//! The scripts of the Pods with real programs, in namespaces that are made as those of a container: with the
//! stated user and variables, without capabilities, and with the volumes as a kubelet makes them.
//!
//! They need root. The database is MariaDB, with a program in the place of the image's entrypoint.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child as Process, Command, Stdio, id},
    sync::atomic::{AtomicUsize, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{first, pod};

mod http;

/// The number of moments at which a first start is killed.
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

/// A container with its own mounts, processes and network.
struct Container {
    root: PathBuf,
    user: u32,
    spec: Value,
}

impl Container {
    /// A container of the site's Pods; none where the tests may make no namespaces.
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
        };
        fs::create_dir_all(container.root.join("bin")).unwrap();
        fs::write(container.root.join("termination-log"), "").unwrap();
        let writable = fs::Permissions::from_mode(0o666);
        fs::set_permissions(container.root.join("termination-log"), writable).unwrap();
        container.empty();
        Some(container)
    }

    /// Makes the volumes anew, owned by root and the group of the Pod.
    fn empty(&self) {
        for (volume, _) in self.mounts() {
            fs::remove_dir_all(self.root.join(&volume)).ok();
            let directory = self.root.join(&volume);
            fs::create_dir_all(&directory).unwrap();
            chown(&directory, Some(0), Some(self.user)).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
        }
    }

    /// The directory of each volume, and where the container has it.
    fn mounts(&self) -> Vec<(String, String)> {
        let mounts = self.spec["volumeMounts"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        mounts
            .map(|it| {
                let volume = text(&it["name"]) + "-" + &text(&it["subPath"]);
                (volume, text(&it["mountPath"]))
            })
            .collect()
    }

    /// Puts a script in the place of a program of the image.
    fn program(&self, name: &str, script: &str) {
        let path = self.root.join("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self, environment: &[(&str, &str)], image: &[(&Path, &str)]) -> Process {
        let root = self.root.display();
        // By another path, because a volume may hide this one.
        let mut lines = vec![format!(
            "set -e; mount -t tmpfs none /mnt; mount -t proc none /proc\n\
             mkdir /mnt/root; mount --bind {root} /mnt/root"
        )];
        // Directories of the image that this machine lacks lie on an overlay that goes with the container.
        lines.extend(["/usr/src", "/var", "/run", "/dev"].map(|parent| {
            let name = parent.replace('/', "-");
            format!(
                "mkdir -p {parent} /mnt/up{name} /mnt/work{name}; mount -t overlay none {parent} \
                 -o lowerdir={parent},upperdir=/mnt/up{name},workdir=/mnt/work{name}"
            )
        }));
        let image = image
            .iter()
            .map(|(from, to)| (from.display().to_string(), (*to).to_owned()));
        let volumes = self.mounts().into_iter();
        let volumes = volumes.map(|(from, to)| (format!("/mnt/root/{from}"), to));
        let bound = image.chain(volumes);
        lines.extend(bound.map(|(from, to)| format!("mkdir -p {to}; mount --bind {from} {to}")));
        lines.push(format!(
            "touch /dev/termination-log; mount --bind /mnt/root/termination-log /dev/termination-log\n\
             ip link set lo up 2>/dev/null || true\n\
             echo 127.0.0.1 localhost shop-mysql >/mnt/hosts; mount --bind /mnt/hosts /etc/hosts\n\
             echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start\n\
             exec setpriv --reuid {0} --regid {0} --clear-groups --no-new-privs --bounding-set -all \"$@\"",
            self.user
        ));
        let script = lines.join("\n");
        // The images of the site start their entrypoint.
        let own = json!(["docker-entrypoint.sh"]);
        let command = self.spec.get("command").unwrap_or(&own);
        let command = command.as_array().unwrap();
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
            .args(command.iter().map(|it| it.as_str().unwrap()))
            .env_clear()
            .envs(Self::environment(environment))
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.root.join("log")).unwrap())
            .stderr(fs::File::create(self.root.join("errors")).unwrap())
            .spawn()
            .unwrap()
    }

    fn environment<'a>(given: &[(&'a str, &'a str)]) -> Vec<(&'a str, String)> {
        let path = "/mnt/root/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        let own = [("PATH", path), ("HOSTNAME", "shop-0".to_owned())];
        let given = given
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        own.into_iter().chain(given).collect()
    }

    /// Runs the command of a probe in the container; true if it succeeds.
    fn probe(&self, probe: &str, container: &Process, environment: &[(&str, &str)]) -> bool {
        let command = self.spec[probe]["exec"]["command"].as_array().unwrap();
        let command = command.iter().map(|it| it.as_str().unwrap());
        self.command(container, command, environment)
            .is_some_and(|mut it| it.status().is_ok_and(|status| status.success()))
    }

    /// A command in the container; none once its first process has ended.
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
            .args(["--target", &first, "--mount", "--pid", "--net"])
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

/// The first process of a container, by its number on this machine.
fn first_process(container: &Process) -> Option<String> {
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let children = fs::read_to_string(children).ok()?;
    children.split_whitespace().next().map(ToOwned::to_owned)
}

/// Kills all processes of a container at once, as the kernel does at the end of its first one.
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

/// The files below a directory with their content, by path.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                found.push((name, fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Files in the place of those of WordPress, as many as it has.
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
        let mut found = files(&container.root.join("html-"));
        let content = files(&content).into_iter();
        found.extend(content.map(|(name, text)| (Path::new("wp-content").join(name), text)));
        found.sort();
        found
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
    // A file of the core that was cut off is written again; the files of the site stay.
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
    // An image without the files has its own way.
    container.empty();
    assert!(container.start(&[], &[]).wait().unwrap().success());
    assert_eq!(copied(), []);
}

/// A program in the place of the entrypoint: it makes the data, then the user, and believes in data that are there.
const ENTRYPOINT: &str = r#"#!/bin/sh
set -eu
if ! [ -d /var/lib/mysql/mysql ]; then
  mariadb-install-db --auth-root-authentication-method=normal --skip-test-db >/dev/null
  "$1" --skip-networking --socket=/run/mysqld/first &
  until mariadb -u root --socket=/run/mysqld/first -e 'SELECT 1' >/dev/null 2>&1; do sleep 0.1; done
  sleep 0.5
  mariadb -u root --socket=/run/mysqld/first -e "CREATE DATABASE \`$MYSQL_DATABASE\`"
  sleep 0.5
  mariadb -u root --socket=/run/mysqld/first -e "CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
    GRANT ALL ON \`$MYSQL_DATABASE\`.* TO '$MYSQL_USER'@'%'"
  mariadb-admin -u root --socket=/run/mysqld/first shutdown
  wait
fi
exec "$@"
"#;

const ACCESS: [(&str, &str); 4] = [
    ("MYSQL_ROOT_PASSWORD", "root"),
    ("MYSQL_USER", "wordpress"),
    ("MYSQL_PASSWORD", "a \"b#c$d`e"),
    ("MYSQL_DATABASE", "wordpress"),
];

/// A container of the database; none where this machine has no MariaDB.
fn database() -> Option<Container> {
    let has_server = Path::new("/usr/sbin/mariadbd").exists();
    assert!(
        has_server || !is_full(),
        "the test needs the package mariadb-server-core"
    );
    let container = Container::new("db", "containers", 999).filter(|_| has_server)?;
    container.program("docker-entrypoint.sh", ENTRYPOINT);
    Some(container)
}

/// Waits until the startup probe succeeds.
fn is_ready(container: &Container, process: &mut Process, seconds: u64) -> bool {
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && process.try_wait().unwrap().is_none() {
        if container.probe("startupProbe", process, &ACCESS) {
            return true;
        }
        sleep(Duration::from_millis(200));
    }
    false
}

#[test]
fn a_first_start_of_the_database_that_was_cut_off_begins_again() {
    let Some(container) = database() else {
        return;
    };
    let (data, first) = (
        container.root.join("data-mysql"),
        container.root.join("data-first-start"),
    );
    let log = || fs::read_to_string(container.root.join("errors")).unwrap();
    let is_empty = |directory: &Path| fs::read_dir(directory).unwrap().next().is_none();
    let start = Instant::now();
    let mut process = container.start(&ACCESS, &[]);
    assert!(is_ready(&container, &mut process, 60), "{}", log());
    let time = start.elapsed();
    for probe in ["readinessProbe", "livenessProbe"] {
        assert!(container.probe(probe, &process, &ACCESS), "{probe}");
    }
    kill(process);
    assert!(is_empty(&first));
    for moment in 0..moments() {
        container.empty();
        let process = container.start(&ACCESS, &[]);
        sleep(time * (2 * moment + 1) / (2 * moments()));
        kill(process);
        let mut process = container.start(&ACCESS, &[]);
        assert!(
            is_ready(&container, &mut process, 60),
            "moment {moment}: {}",
            log()
        );
        kill(process);
        assert!(is_empty(&first));
    }
    // Data of a start that has ended are never touched.
    fs::write(data.join("mark"), "kept").unwrap();
    let mut process = container.start(&ACCESS, &[]);
    assert!(is_ready(&container, &mut process, 60), "{}", log());
    kill(process);
    assert_eq!(fs::read_to_string(data.join("mark")).unwrap(), "kept");
}

#[test]
fn a_database_without_its_user_is_not_ready() {
    let Some(container) = database() else {
        return;
    };
    // The data of another first start that was cut off, without a mark.
    container.program(
        "docker-entrypoint.sh",
        "#!/bin/sh\nmariadb-install-db --skip-test-db >/dev/null\nexec \"$@\"",
    );
    let mut process = container.start(&ACCESS, &[]);
    let data = container.root.join("data-mysql");
    let end = Instant::now() + Duration::from_mins(1);
    while !container.probe("readinessProbe", &process, &ACCESS) && Instant::now() < end {
        sleep(Duration::from_millis(200));
    }
    assert!(!is_ready(&container, &mut process, 1));
    kill(process);
    let mark = container.root.join("data-first-start/unfinished");
    assert!(mark.exists());
    fs::remove_file(mark).unwrap();
    fs::write(data.join("mark"), "kept").unwrap();
    container.program("docker-entrypoint.sh", ENTRYPOINT);
    let mut process = container.start(&ACCESS, &[]);
    let end = Instant::now() + Duration::from_mins(2);
    // The ping succeeds, which is the reason that it must not be the only proof.
    while container.termination_message().is_empty()
        || !container.probe("readinessProbe", &process, &ACCESS)
    {
        assert!(Instant::now() < end, "{}", container.termination_message());
        assert!(!is_ready(&container, &mut process, 1));
    }
    kill(process);
    assert_eq!(container.termination_message(), "UserMissing\n");
    assert_eq!(fs::read_to_string(data.join("mark")).unwrap(), "kept");
}
