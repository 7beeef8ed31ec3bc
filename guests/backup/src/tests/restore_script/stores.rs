//! Real storage servers, from which the real rclone fetches with a Job's settings.

use std::{
    fs::{self, File, Permissions},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::catalog::STORAGES;

use super::{PASSWORD, real::is_full, servers::free_port, *};

/// A user name with the characters that each type allows.
const USER: &[u8] = b"u 'b' \"c\" $HOME ${D} #e\\ %20";

/// A secret key like S3's, with more characters.
const SECRET_KEY: &[u8] = b"a/b+c= 'd' \"e\" $HOME #f\\ %20";

/// A file server on loopback.
pub(in crate::tests) struct Store {
    process: Child,
    pub(in crate::tests) port: u16,
}

impl Store {
    /// Starts a row's server, and waits until it accepts connections.
    pub(in crate::tests) fn start(run: &Run, row: &Row) -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let directory = run.path("volumes/data");
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let mut command = match row.protocol {
            "s3" => {
                let mut command = Command::new(s3_program());
                command.args([&address, &directory, "b"]);
                command.env("S3_ACCESS_KEY", "AKIA.1");
                command.env("S3_SECRET_KEY", text(SECRET_KEY));
                command
            }
            // Debian's rclone does not serve FTP.
            "ftp" => {
                let mut command = Command::new("/usr/bin/python3");
                command.args([
                    "-m",
                    "pyftpdlib",
                    "-i",
                    "127.0.0.1",
                    "-w",
                    "-p",
                    &port.to_string(),
                ]);
                command.args(["-d", &directory, "-u", text(USER), "-P", text(PASSWORD)]);
                command
            }
            protocol => {
                let mut command = Command::new("rclone");
                command.args(["--config", "", "serve", protocol, &directory]);
                command.args(["--addr", &address]);
                if row.has_key {
                    command.arg(format!("--authorized-keys={}", key(run)));
                } else {
                    command.args(["--user", text(USER), "--pass", text(PASSWORD)]);
                }
                // For the server's key.
                command.env("XDG_CACHE_HOME", run.path("cache"));
                command
            }
        };
        let log = run.path("store.log");
        command.stderr(File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(&address).is_err() {
            let log = || fs::read_to_string(&log).unwrap();
            assert!(Instant::now() < deadline, "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { process, port }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests/environment sets it, and there is no configuration of unit tests"
)]
fn s3_program() -> std::ffi::OsString {
    std::env::var_os("INNKEEPER_S3").expect("tests/environment was read")
}

/// Creates a user's key with a passphrase, and returns the path of the public half.
fn key(run: &Run) -> String {
    let path = run.path("keys/ST0_PRIVATE_KEY");
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-f", &path])
        .args(["-N", std::str::from_utf8(PASSWORD).unwrap()])
        .status();
    assert!(status.unwrap().success());
    // A kubelet lets the Pod's group read it.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    format!("{path}.pub")
}

/// A storage type.
pub(in crate::tests) struct Row {
    pub(in crate::tests) type_: &'static str,
    /// The server's protocol.
    protocol: &'static str,
    /// True for a login by a key.
    has_key: bool,
    /// Settings without credentials; `PORT` is the server's.
    config: &'static str,
    /// Credentials by their keys, with the variables that rclone reads, and their values.
    pub(in crate::tests) credentials: &'static [(&'static str, &'static str, &'static [u8])],
}

const LOGIN: &[(&str, &str, &[u8])] = &[
    ("username", "RCLONE_CONFIG_SRC_USER", USER),
    ("password", "FETCH_PASS", PASSWORD),
];

const KEYS: &[(&str, &str, &[u8])] = &[
    (
        "access_key_id",
        "RCLONE_CONFIG_SRC_ACCESS_KEY_ID",
        b"AKIA.1\n",
    ),
    (
        "secret_access_key",
        "RCLONE_CONFIG_SRC_SECRET_ACCESS_KEY",
        SECRET_KEY,
    ),
];

const ROWS: [Row; 7] = [
    Row {
        type_: "sftp",
        protocol: "sftp",
        has_key: false,
        config: r#"{"host": "127.0.0.1", "port": PORT, "path": "archives"}"#,
        credentials: LOGIN,
    },
    Row {
        type_: "scp",
        protocol: "sftp",
        has_key: true,
        config: r#"{"host": "127.0.0.1", "port": PORT, "path": "/archives/"}"#,
        credentials: &[
            ("username", "RCLONE_CONFIG_SRC_USER", USER),
            ("private_key", "", b""),
            ("passphrase", "FETCH_KEY_FILE_PASS", PASSWORD),
        ],
    },
    Row {
        type_: "ftp",
        protocol: "ftp",
        has_key: false,
        config: r#"{"host": "127.0.0.1", "port": PORT, "path": "/archives"}"#,
        credentials: LOGIN,
    },
    Row {
        type_: "webdav",
        protocol: "webdav",
        has_key: false,
        config: r#"{"root": "http://127.0.0.1:PORT", "path": "/archives"}"#,
        credentials: LOGIN,
    },
    Row {
        type_: "s3",
        protocol: "s3",
        has_key: false,
        config: r#"{"endpoint": "http://127.0.0.1:PORT", "bucket": "b", "path": "archives", "force_path_style": true}"#,
        credentials: KEYS,
    },
    Row {
        type_: "minio",
        protocol: "s3",
        has_key: false,
        config: r#"{"endpoint": "http://127.0.0.1:PORT", "bucket": "b", "path": "/archives/", "region": "eu"}"#,
        credentials: KEYS,
    },
    Row {
        type_: "b2",
        protocol: "s3",
        has_key: false,
        config: r#"{"endpoint": "http://127.0.0.1:PORT", "bucket": "b", "path": "archives", "region": "eu"}"#,
        credentials: KEYS,
    },
];

/// The rows above, and one for each further type like S3.
pub(in crate::tests) fn rows() -> Vec<Row> {
    let further = STORAGES
        .types
        .iter()
        .filter(|type_| type_.is_s3_like)
        .filter(|type_| ROWS.iter().all(|row| row.type_ != type_.name))
        .map(|type_| Row {
            type_: type_.name,
            protocol: "s3",
            has_key: false,
            config: r#"{"endpoint": "http://127.0.0.1:PORT", "bucket": "b", "path": "archives", "region": "eu", "force_path_style": true, "storage_class": "STANDARD"}"#,
            credentials: KEYS,
        });
    ROWS.into_iter().chain(further).collect()
}

impl Row {
    pub(in crate::tests) fn storage(&self, port: u16) -> Value {
        let config = self.config.replace("PORT", &port.to_string());
        let mut config: Value = serde_json::from_str(&config).unwrap();
        for (key, _, _) in self.credentials {
            config[format!("{key}_ref")] = json!({ "name": "keys", "key": "key" });
        }
        json!({ "type": self.type_, "config": config })
    }
}

#[test]
fn an_archive_is_fetched_from_each_type_of_storage() {
    if !is_full() {
        return;
    }
    let files = [("nightly/postgresql/a/shop.sql", "select 1;\n")];
    // A parent's archives have another path on an FTP server.
    for row in rows().iter().filter(|row| row.type_ != "ftp") {
        let run = Run::new(Shell::Own, "");
        archive(&run, &files, PASSWORD);
        let store = Store::start(&run, row);
        let config = json!({ "database": "shop", "username": "u" });
        let databases = [database("a", "postgresql", config)];
        let containers = containers_from(&row.storage(store.port), &databases);
        run.program("psql", SHOWING);
        let mut values: Vec<(&str, &[u8])> =
            vec![("ENC_PASSWORD", PASSWORD), ("DB0_PASSWORD", b"first")];
        let credentials = row
            .credentials
            .iter()
            .filter(|credential| !credential.1.is_empty());
        values.extend(credentials.map(|(_, variable, value)| (*variable, *value)));
        let result = both(&run, &containers, &values);
        assert_eq!(result.code, Some(0), "{}: {result:?}", row.type_);
        let restored = run.mount("/data/back/nightly/source/file");
        assert_eq!(fs::read_to_string(restored).unwrap(), "content");

        // A wrong secret is refused, and the log does not have it.
        fs::remove_dir_all(run.path("work")).unwrap();
        run.directory("work");
        let last = values.last_mut().unwrap();
        last.1 = b"another 'value'";
        let result = both(&run, &containers, &values);
        assert_eq!(result.code, Some(1), "{}: {result:?}", row.type_);
        let message = "rclone cannot fetch 2026.tar from the storage";
        assert!(result.message.contains(message), "{result:?}");
        assert!(!result.log.contains("another 'value'"), "{result:?}");
    }
}

// An archive that is one file instead of a directory with chunks.
#[test]
fn an_archive_of_one_file_is_fetched_from_each_type_of_storage() {
    if !is_full() {
        return;
    }
    // A parent's archives have another path on an FTP server.
    for row in rows().iter().filter(|row| row.type_ != "ftp") {
        let run = Run::new(Shell::Own, "");
        run.directory("volumes/data/archives/default/backup/nightly");
        run.file(
            "volumes/data/archives/default/backup/nightly/2026.tar",
            "archive",
        );
        run.file(
            "volumes/data/archives/default/backup/nightly/2026.tar.other",
            "other",
        );
        let store = Store::start(&run, row);
        let [fetch, _] = containers_from(&row.storage(store.port), &[]);
        let values: Vec<_> = row
            .credentials
            .iter()
            .filter(|credential| !credential.1.is_empty())
            .map(|(_, name, value)| (*name, *value))
            .collect();
        let result = run.execute(&fetch, &run.search_path(), &values);
        assert_eq!(result.code, Some(0), "{}: {result:?}", row.type_);
        let fetched: Vec<_> = fs::read_dir(run.path("work/fetched"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(fetched.len(), 1, "{}: {fetched:?}", row.type_);
        assert_eq!(fs::read_to_string(&fetched[0]).unwrap(), "archive");
    }
}
