//! Storages and servers: what is stored, which size it has, and what fails.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    super::restore_script::{
        database,
        servers::free_port,
        stores::{Store, rows},
    },
    super::run::RunResult,
    *,
};

/// The variables of a run for storage credentials.
const VARIABLES: [(&str, &str); 5] = [
    ("username", "ST0_USERNAME"),
    ("password", "ST0_PASSWORD"),
    ("passphrase", "ST0_PASSPHRASE"),
    ("access_key_id", "ST0_ACCESS_KEY_ID"),
    ("secret_access_key", "ST0_SECRET_ACCESS_KEY"),
];

#[test]
fn each_storage_gets_and_gives_an_archive() {
    let Some(program) = program() else { return };
    // The server has no scp.
    for row in rows().iter().filter(|row| row.type_ != "scp") {
        let spec =
            json!({ "archive": { "includes": ["/data/docs"] }, "compressWith": { "type": "tgz" } });
        let mut case = Case::new(&spec, &[], &[shelf()]);
        case.run.directory("volumes/data/docs");
        case.run.file("volumes/data/docs/a", &"content".repeat(100));
        // gobackup only creates a directory if the server answers like pure-ftpd.
        case.run
            .directory("volumes/data/archives_default_backup_nightly");
        let store = Store::start(&case.run, row);
        *case.objects.last_mut().unwrap() = related("Storage", "s", row.storage(store.port));
        for (key, variable, value) in row.credentials {
            let own = VARIABLES
                .iter()
                .find(|variable| variable.0 == *key)
                .map(|variable| variable.1);
            for name in own
                .into_iter()
                .chain([*variable])
                .filter(|text| !text.is_empty())
            {
                case.values.push((name, value.to_vec()));
            }
        }
        let result = case.perform(Some(&program));
        let file = stored(&result);
        let message: Value = serde_json::from_str(&result.message).unwrap();
        let bytes = message["bytes"].as_u64();
        assert!(
            bytes.is_some_and(|bytes| bytes < 500),
            "{}: {result:?}",
            row.type_
        );
        assert_eq!(message["retention"], "", "{}: {result:?}", row.type_);
        if matches!(row.type_, "sftp" | "webdav") {
            let all = files(&case.run, "volumes/data");
            let (_, size) = all.iter().find(|(path, _)| path.ends_with(&file)).unwrap();
            assert_eq!(bytes, Some(*size), "{}", row.type_);
        }
        let restored = case.restore(
            &file,
            &json!({ "confirm": "", "archive": { "targetPath": "/data/back" } }),
        );
        assert_eq!(restored.code, Some(0), "{}: {restored:?}", row.type_);
        let back = files(&case.run, "volumes/data/back");
        assert_eq!(back.values().collect::<Vec<_>>(), [&700], "{}", row.type_);
    }
}

/// Returns a log's lines about storages, without times, tags, sizes and causes: gobackup writes lines under the last
/// tag.
fn lines_about_storages(result: &RunResult) -> Vec<String> {
    let about = ["=> Storage |", "-> Uploading", "cycler state"];
    result
        .log
        .lines()
        .filter(|line| about.iter().any(|word| line.contains(word)))
        .map(|line| {
            let text = line.rsplit(']').next().unwrap_or_default();
            let end = text.find(['(', ':']).unwrap_or(text.len());
            text[..end].to_owned()
        })
        .collect()
}

#[test]
fn the_stand_in_logs_as_gobackup_does() {
    let Some(program) = program() else { return };
    let spec = json!({ "archive": { "includes": ["/data/docs"] } });
    let rows = rows();
    let row = rows.iter().find(|row| row.type_ == "minio").unwrap();
    for is_local in [true, false] {
        let logs = [Some(program.as_str()), None].map(|program| {
            let mut case = Case::new(&spec, &[], &[shelf()]);
            case.run.directory("volumes/data/docs");
            case.run.file("volumes/data/docs/a", "content");
            let _store = (!is_local).then(|| {
                let store = Store::start(&case.run, row);
                *case.objects.last_mut().unwrap() =
                    related("Storage", "s", row.storage(store.port));
                case.values
                    .push(("ST0_ACCESS_KEY_ID", row.credentials[0].2.to_vec()));
                case.values
                    .push(("ST0_SECRET_ACCESS_KEY", row.credentials[1].2.to_vec()));
                store
            });
            let result = case.perform(program);
            assert_eq!(result.code, Some(0), "{result:?}");
            lines_about_storages(&result)
        });
        assert_eq!(logs[0], logs[1], "{is_local}");
    }
}

// Another storage is unavailable: the run fails, and the message has both causes.
#[test]
fn a_failed_run_deletes_no_more_than_one_archive() {
    let Some(program) = program() else { return };
    let port = free_port();
    let down = json!({ "type": "minio", "config": {
        "bucket": "b", "endpoint": format!("http://127.0.0.1:{port}"), "max_retries": 0,
        "access_key_id": "i", "secret_access_key": "k",
    } });
    let spec = json!({
        "archive": { "includes": ["/data/docs"] }, "state": { "mode": "Volume" },
        "storageRefs": [{ "name": "s", "keep": 2 }],
    });
    let mut case = Case::new(&spec, &[], &[shelf()]);
    case.run.directory("volumes/data/docs");
    case.objects.push(related("Storage", "down", down));
    for _ in 0..3 {
        stored(&case.perform(Some(&program)));
        std::thread::sleep(Duration::from_millis(1100));
    }
    let before = archives(&case.run);
    assert_eq!(before.len(), 2);
    case.parent["spec"]["storageRefs"] = json!([{ "name": "s", "keep": 2 }, { "name": "down" }]);
    let outcome = reconcile(&case.parent, &case.objects).unwrap();
    let job = Value::from(outcome.child("run").unwrap().object.clone());
    assert_eq!(job["spec"]["backoffLimit"], 0);
    let result = case.perform(Some(&program));
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.message.contains(&port.to_string()), "{result:?}");
    let after = archives(&case.run);
    assert_eq!(after.iter().filter(|path| before.contains(path)).count(), 1);
}

#[test]
fn a_failed_deletion_of_an_archive_is_reported() {
    let Some(program) = program() else { return };
    let spec = json!({
        "archive": { "includes": ["/data/docs"] }, "state": { "mode": "Volume" },
        "storageRefs": [{ "name": "s", "keep": 1 }],
    });
    let case = Case::new(&spec, &[], &[shelf()]);
    case.run.directory("volumes/data/docs");
    let first = stored(&case.perform(Some(&program)));
    let all = files(&case.run, "volumes/data/archives");
    let path = all.keys().find(|path| path.ends_with(&first)).unwrap();
    // A directory instead.
    fs::remove_file(path).unwrap();
    fs::create_dir_all(format!("{path}/x")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let result = case.perform(Some(&program));
    stored(&result);
    let message: Value = serde_json::from_str(&result.message).unwrap();
    let line = message["retention"].as_str().unwrap();
    assert!(
        line.contains("Remove ") && line.contains(" failed: "),
        "{result:?}"
    );
}

/// A Redis on loopback with one key.
struct Redis {
    process: Child,
    port: u16,
}

const REDIS_PASSWORD: &[u8] = b"r$d\"s#1";

impl Redis {
    fn start(run: &Run) -> Self {
        let port = free_port();
        let password = std::str::from_utf8(REDIS_PASSWORD).unwrap();
        let directory = run.directory("redis");
        // The server's package starts it; the tools' package has the same program.
        let process = Command::new("redis-check-rdb")
            .arg0("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args([
                "--dir",
                directory.to_str().unwrap(),
                "--requirepass",
                password,
            ])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { process, port };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let set = Command::new("redis-cli")
                .args(["-p", &port.to_string(), "-a", password, "set", "k", "v"])
                .output()
                .unwrap();
            if set.stdout.starts_with(b"OK") {
                return redis;
            }
            assert!(Instant::now() < deadline, "{set:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn a_server_that_refuses_a_run_fails_it() {
    let Some(program) = program() else { return };
    let place = Run::new(Shell::Own, "");
    let redis = Redis::start(&place);
    let closed = free_port();
    let server = |type_: &str, port: u16| {
        let config = json!({ "host": "127.0.0.1", "port": port, "database": "shop" });
        let mut database = database("pg", type_, config);
        if type_ == "redis" {
            let config = database["spec"]["config"].as_object_mut().unwrap();
            config.remove("username");
            config.remove("database");
        } else {
            database["spec"]["config"]["username"] = json!("u");
        }
        database
    };
    for (type_, port, password, is_good) in [
        ("redis", redis.port, REDIS_PASSWORD, true),
        ("redis", redis.port, b"other", false),
        ("redis", closed, REDIS_PASSWORD, false),
        ("postgresql", closed, b"p", false),
        ("mysql", closed, b"p", false),
    ] {
        let case = Case::new(&json!({}), &[server(type_, port)], &[shelf()])
            .value("DB0_PASSWORD", password);
        let result = case.perform(Some(&program));
        assert_eq!(
            result.code,
            Some(i32::from(!is_good)),
            "{type_}: {result:?}"
        );
        let archives = archives(&case.run).len();
        assert_eq!(archives, usize::from(is_good), "{type_}");
    }
}
