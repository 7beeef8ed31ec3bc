//! Each form of an archive and of a dump goes back through the script of a Restore.

use super::{
    super::restore_script::{
        PASSWORD,
        servers::{Engine, Server},
    },
    *,
};

const COMPRESSIONS: [&str; 9] = ["", "tar", "tgz", "bzip2", "xz", "zstd", "lz", "lzma", "lzo"];

fn encryptions() -> Vec<Value> {
    let password = json!({ "name": "keys", "key": "key" });
    let mut blocks = vec![Value::Null];
    for further in [
        json!({}),
        json!({ "args": "-pbkdf2" }),
        json!({ "args": "-pbkdf2 -iter 600" }),
        json!({ "args": " -pbkdf2  -iter 600 -md sha512 -salt" }),
        json!({ "base64": true, "salt": true }),
        json!({ "cipher": "aes-128-ctr", "salt": false }),
        json!({ "args": "-aes-192-cbc" }),
    ] {
        let mut block = json!({ "type": "openssl", "passwordRef": password });
        for (key, value) in further.as_object().unwrap() {
            block[key] = value.clone();
        }
        blocks.push(block);
    }
    blocks
}

fn splits() -> [Value; 3] {
    [
        Value::Null,
        json!({ "chunkSize": "2k" }),
        json!({ "chunkSize": "700", "suffixLength": 4, "numericSuffixes": false }),
    ]
}

#[test]
fn every_form_of_an_archive_is_restored() {
    let Some(program) = program() else { return };
    let content: String = (0..2000)
        .filter_map(|it: u32| char::from_digit(it * it % 36, 36))
        .collect();
    for (place, compression) in COMPRESSIONS.iter().enumerate() {
        for encryption in encryptions() {
            for split in splits() {
                // Each pair of settings, not each triple, as a rule.
                if place > 2
                    && !split.is_null()
                    && !encryption.is_null()
                    && encryption.get("args").is_none()
                {
                    continue;
                }
                let mut spec = json!({ "archive": { "includes": ["/data/docs"] }, "encodeWith": encryption, "splitWith": split });
                if !compression.is_empty() {
                    spec["compressWith"] = json!({ "type": compression });
                }
                spec.as_object_mut().unwrap().retain(|_, it| !it.is_null());
                let case =
                    Case::new(&spec, &[], &[shelf()]).value("ENC_PASSWORD", b"two words'\"$");
                case.run.directory("volumes/data/docs");
                case.run.file("volumes/data/docs/a b", &content);
                let ended = case.perform(&program);
                assert_eq!(ended.code, Some(0), "{spec}: {ended:?}");
                let restored = case.restore(
                    &stored(&ended),
                    &json!({ "confirm": "", "archive": { "targetPath": "/data/back" } }),
                );
                assert_eq!(restored.code, Some(0), "{spec}: {restored:?}");
                let back = files(&case.run, "volumes/data/back");
                let path = back.keys().find(|it| it.ends_with("/docs/a b")).unwrap();
                assert_eq!(fs::read_to_string(path).unwrap(), content, "{spec}");
            }
        }
    }
}

#[test]
fn every_format_of_pg_dump_is_restored() {
    let Some(program) = program() else { return };
    let place = Run::new(Shell::Own, "");
    let server = Server::start(&place, Engine::PostgreSql);
    server.create("shop");
    server.query("shop", "CREATE TABLE t (v int); INSERT INTO t SELECT generate_series(1, 3000); \
        CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE VIEW w AS SELECT v FROM t");
    for (number, args) in [
        "",
        "--format=custom",
        "--format=directory",
        "--format=tar",
        "-Fd -Z 3",
        "-Z 6",
        "--clean --if-exists",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("copy_{number}");
        server.create(&name);
        let mut source = server.target("shop");
        source["spec"]["config"]["args"] = json!(args);
        let mut copy = server.target(&name);
        copy["metadata"]["name"] = json!("copy");
        let mut case = Case::new(&json!({}), &[source], &[shelf()]).value("DB0_PASSWORD", PASSWORD);
        let ended = case.perform(&program);
        assert_eq!(ended.code, Some(0), "{args}: {ended:?}");
        case.objects.push(copy);
        let overrides = json!([{ "database": "shop", "databaseRef": { "name": "copy" } }]);
        let restored = case.restore(
            &stored(&ended),
            &json!({ "confirm": "copy", "overrides": overrides }),
        );
        assert_eq!(restored.code, Some(0), "{args}: {restored:?}");
        let count = server.query(&name, "SELECT count(*), f() FROM w");
        assert_eq!(count, "3000|1\n", "{args}");
    }
}

#[test]
fn modes_are_kept_and_lost_owners_are_named() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let Some(program) = program() else { return };
    let Some(own) = Run::owner() else { return };
    let spec = json!({ "archive": { "includes": ["/data/uploads"] } });
    let case = Case::new(&spec, &[], &[shelf()]);
    let directory = case.run.directory("volumes/data/uploads");
    for (name, mode, owner) in [("a", 0o664, own), ("b", 0o646, 1000), ("c", 0o600, own)] {
        let path = case.run.file(&format!("volumes/data/uploads/{name}"), name);
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
    let ended = case.perform(&program);
    let restored = case.restore(
        &stored(&ended),
        &json!({ "confirm": "", "archive": { "targetPath": "/data/back" } }),
    );
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let told =
        format!("owners were not kept: files of 1000/1000 (user/group) belong to {own}/{own} now");
    assert!(restored.message.contains(&told), "{restored:?}");
    let back = files(&case.run, "volumes/data/back");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let modes = back.keys().map(|it| mode(it.as_ref())).collect::<Vec<_>>();
    assert_eq!(modes, [0o664, 0o646, 0o600]);
    let first = std::path::Path::new(back.keys().next().unwrap());
    assert_eq!(mode(first.parent().unwrap()), 0o2775);
}
