//! Runs an answer's containers as processes on this machine.
//!
//! A container's mounts become directories, and the address of all interfaces becomes the Pod's address, because all
//! Pods share one network here. The rest is as in the answer.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use innkeeper_tests::process::{Running, bound, path_from_env, spawn_bound};
use rustix::process::Signal;
use serde_json::Value;

/// The images' programs, each in the only directory on the containers' search path.
pub(super) struct Images {
    directory: PathBuf,
    busybox: String,
}

impl Images {
    pub(super) fn new(directory: PathBuf) -> Self {
        let which = Command::new("which").arg("busybox").output().unwrap();
        let busybox = String::from_utf8(which.stdout).unwrap().trim().to_owned();
        assert!(
            !busybox.is_empty(),
            "busybox is missing: run ./tests/setup --only etcd"
        );
        let tools = directory.join("busybox");
        fs::create_dir_all(&tools).unwrap();
        for name in ["cat", "cp", "ls", "sleep"] {
            symlink(&busybox, tools.join(name)).unwrap();
        }
        Self { directory, busybox }
    }

    /// The directory with an image's programs: the tools', or an etcd version's.
    pub(super) fn programs(&self, image: &str) -> PathBuf {
        let (name, tag) = image.rsplit_once(':').unwrap();
        if name == "busybox" {
            return self.directory.join(name);
        }
        let version: Vec<&str> = tag.trim_start_matches('v').splitn(3, '.').collect();
        let programs = format!("etcd-{}.{}", version[0], version[1]);
        let directory = self.directory.join(&programs);
        if !directory.exists() {
            let built = path_from_env("INNKEEPER_ETCD").unwrap().join(&programs);
            assert!(
                built.exists(),
                "{programs} is not built: run ./tests/setup --only etcd"
            );
            fs::create_dir(&directory).unwrap();
            // No link to the checkout, which the Pod's user may not enter.
            fs::copy(&built, directory.join("etcd")).unwrap();
            symlink("etcd", directory.join("etcdctl")).unwrap();
        }
        directory
    }
}

/// The environment that the containers of one Pod share.
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) address: String,
    /// The fields that variables reference, by path.
    pub(super) fields: BTreeMap<&'static str, String>,
    /// The volumes' directories by name.
    pub(super) volumes: BTreeMap<String, PathBuf>,
    /// The Pod's user and group; `None` where tests cannot choose them.
    pub(super) user: Option<u32>,
}

impl Place {
    /// Starts a container. `config` has the ConfigMaps' data by name.
    pub(super) fn start(
        &self,
        images: &Images,
        container: &Value,
        config: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Running {
        let words = ["command", "args"]
            .into_iter()
            .flat_map(|field| list(&container[field]));
        let mut command = self.command(images, container, words, config);
        let message = File::create(self.message(container)).unwrap();
        message
            .set_permissions(Permissions::from_mode(0o666))
            .unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(container))
            .unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        spawn_bound(command).unwrap()
    }

    /// True if a command succeeds in a container.
    pub(super) fn succeeds(
        &self,
        images: &Images,
        container: &Value,
        command: &Value,
        config: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> bool {
        self.command(images, container, list(command), config)
            .output()
            .unwrap()
            .status
            .success()
    }

    fn command<'a>(
        &self,
        images: &Images,
        container: &Value,
        words: impl Iterator<Item = &'a Value>,
        config: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> Command {
        let variables = self.variables(container, config);
        let own = |text: &Value| {
            let text = text.as_str().unwrap();
            let expand = |text: String, (name, value): (&String, &String)| {
                text.replace(&format!("$({name})"), value)
            };
            self.located(
                images,
                container,
                &variables.iter().fold(text.to_owned(), expand),
            )
        };
        let programs = images.programs(container["image"].as_str().unwrap());
        let mut command = bound(Path::new("setpriv"));
        if let Some(user) = self.user {
            let group = format!("--regid={user}");
            let user = format!("--reuid={user}");
            command.args([
                &user,
                &group,
                "--clear-groups",
                "--no-new-privs",
                "--bounding-set=-all",
            ]);
        }
        // The kernel clears the signal when the user changes.
        command.args(["setpriv", "--pdeathsig", "TERM"]);
        // Through `env`, because the container's program is searched in the image and this one on the machine.
        command.args(["env", "-i", &format!("PATH={}", programs.display())]);
        command.args(
            variables
                .iter()
                .map(|(name, value)| self.located(images, container, &format!("{name}={value}"))),
        );
        command.args(words.map(own)).current_dir(&self.directory);
        command
    }

    fn variables(
        &self,
        container: &Value,
        config: &BTreeMap<String, BTreeMap<String, String>>,
    ) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        for source in list(&container["envFrom"]) {
            let name = source["configMapRef"]["name"].as_str().unwrap();
            variables.extend(config[name].clone());
        }
        for variable in list(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(path) => self.fields[path].clone(),
                None => variable["value"].as_str().unwrap_or_default().to_owned(),
            };
            variables.insert(variable["name"].as_str().unwrap().to_owned(), value);
        }
        variables
    }

    /// A text with this machine's paths and addresses.
    fn located(&self, images: &Images, container: &Value, text: &str) -> String {
        let message = self.message(container);
        let mut text = text
            .replace("/bin/busybox", &images.busybox)
            .replace("0.0.0.0", &self.address)
            .replace("/dev/termination-log", message.to_str().unwrap());
        for mount in list(&container["volumeMounts"]) {
            let volume = &self.volumes[mount["name"].as_str().unwrap()];
            let path = mount["mountPath"].as_str().unwrap();
            text = text.replace(&format!("{path}/"), &format!("{}/", volume.display()));
        }
        text
    }

    pub(super) fn log(&self, container: &Value) -> PathBuf {
        self.directory
            .join(format!("{}.log", container["name"].as_str().unwrap()))
    }

    fn message(&self, container: &Value) -> PathBuf {
        self.directory
            .join(format!("{}.message", container["name"].as_str().unwrap()))
    }

    /// The termination message of a container that exited with this code.
    pub(super) fn ended(&self, container: &Value, code: i32) -> String {
        let written = fs::read_to_string(self.message(container)).unwrap();
        let falls_back = container["terminationMessagePolicy"] == "FallbackToLogsOnError";
        if code == 0 || !written.is_empty() || !falls_back {
            return written;
        }
        let log = fs::read_to_string(self.log(container)).unwrap();
        let start = log.len().saturating_sub(2048);
        log[start..].to_owned()
    }

    /// True if an HTTP or TCP probe succeeds.
    pub(super) fn probe(&self, probe: &Value) -> bool {
        if let Some(port) = probe["tcpSocket"]["port"].as_u64() {
            let address = format!("{}:{port}", self.address).parse().unwrap();
            return TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok();
        }
        let get = &probe["httpGet"];
        let port = get["port"].as_u64().unwrap();
        self.asks(port, "GET", get["path"].as_str().unwrap(), "")
    }

    /// True if an HTTP request returns status 200.
    pub(super) fn asks(&self, port: u64, method: &str, path: &str, body: &str) -> bool {
        let address: SocketAddr = format!("{}:{port}", self.address).parse().unwrap();
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        answer().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
    }
}

/// Ends a process as the kubelet does.
pub(super) fn stop(process: &mut Running) {
    if process.try_wait().unwrap().is_some() {
        return;
    }
    process.signal(Signal::TERM).unwrap();
    if process.wait_for(Duration::from_secs(30)).is_err() {
        process.kill().unwrap();
    }
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
