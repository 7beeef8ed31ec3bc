//! Tenants' command lines: dangerous options and values of each program with the rule that refuses them, and those that
//! users need.

use expect_test::{Expect, expect};
use innkeeper_sdk::testing::TestRequest;

use super::*;
use crate::programs::openssl;

const OFF: &str = ", and tenants.scripts of the plugin's configuration is off";

/// Returns the default configuration's verdict on a parent with these objects.
fn verdict(parent: &Value, objects: &[Value]) -> String {
    let shortened = |text: &str| text.replace(OFF, ", ...");
    let outcome = match reconcile(parent, objects) {
        Ok(outcome) => outcome,
        Err(fault) => return shortened(&format!("Invalid: {}", fault.message)),
    };
    let report = outcome.report();
    let status = report.status.as_ref().unwrap();
    let mut warnings = status["warnings"].as_array().into_iter().flatten();
    if let Some(warning) = warnings.find(|warning| warning["code"] == "ScriptNotAllowed") {
        assert!(!configuration(&outcome).contains("exec="));
        return shortened(warning["message"].as_str().unwrap());
    }
    match outcome.child("run") {
        Some(_) => "accepted".to_owned(),
        None => shortened(&condition(report, "Ready")),
    }
}

/// Compares verdicts on a database's arguments. Refused ones are allowed with scripts.
#[track_caller]
fn check_arguments(type_: &str, config: Value, arguments: &[&str], expected: &Expect) {
    let volume = json!({ "name": "v", "mountPath": "/data", "configMap": { "name": "c" } });
    let parent = backup(json!({ "volumes": [volume] }));
    let lines = arguments.iter().map(|arguments| {
        let mut objects = around();
        let mut config = config.clone();
        config["args"] = json!(arguments);
        objects[0] = related("Database", "pg", json!({ "type": type_, "config": config }));
        let verdict = verdict(&parent, &objects);
        let allowed = reconcile_with(&parent, &objects, &json!({ "scripts": true })).unwrap();
        let has_shell = condition(allowed.report(), "Ready").contains("pg_dumpall's shell");
        assert!(allowed.child("run").is_some() || has_shell);
        let refusal = verdict.strip_prefix("False/InvalidReference: Database pg: config.args: ");
        format!("{arguments}: {}\n", refusal.unwrap_or(&verdict))
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// Compares verdicts on a parent's settings. A model with them is refused for the same reason.
#[track_caller]
fn check_settings(settings: &[Value], expected: &Expect) {
    let lines = settings.iter().map(|settings| {
        let own = verdict(&backup(settings.clone()), &around());
        let mut objects = around();
        objects.push(related("BackupModel", "m", settings.clone()));
        let parent = backup(json!({ "backupModelRef": { "name": "m" } }));
        let shared = match own.strip_prefix("Invalid: ") {
            Some(problem) => format!("False/InvalidReference: BackupModel m: {problem}"),
            None => own.clone(),
        };
        assert_eq!(verdict(&parent, &objects), shared);
        format!("{settings}: {own}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

fn encoding(settings: Value) -> Value {
    let mut block = json!({ "type": "openssl", "password": "p" });
    for (key, value) in settings.as_object().unwrap() {
        block[key] = value.clone();
    }
    json!({ "encodeWith": block })
}

#[test]
fn openssl_encrypts_and_nothing_else() {
    let with = |cipher: &str| encoding(json!({ "cipher": cipher }));
    let args = |args: &str| encoding(json!({ "args": args }));
    check_settings(
        &[
            with("aes-256-cbc"),
            with("AES-256-CTR"),
            with("chacha20"),
            with(""),
            with("cms"),
            with("enc"),
            with("-aes-256-cbc"),
            with("aes-256-cbc -engine"),
            with("req"),
            with("s_client"),
            with("/data/x"),
            args("-pbkdf2"),
            args("-pbkdf2 -iter 600000 -md sha512 -salt"),
            args("-md SHA256"),
            args("-aes-256-cbc"),
            args("-config=/data/evil.cnf"),
            args("-pbkdf2 -config /data/evil.cnf"),
            args("-engine /data/evil.so"),
            args("-provider-path /data -provider evil"),
            args("--provider-path=/data"),
            args("-pass file:/etc/passwd"),
            args("-kfile /etc/passwd"),
            args("-out /data/x"),
            args("-rand /data/x"),
            args("-d"),
            args("-iter 0"),
            args("-iter"),
            args("-iter -md"),
            args("-iter=5"),
            args("-md /data/x"),
            args("-pbkdf2\u{a0}-engine"),
        ],
        &expect![[r#"
            {"encodeWith":{"cipher":"aes-256-cbc","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"cipher":"AES-256-CTR","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"cipher":"chacha20","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"cipher":"","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"cipher":"cms","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: cms is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"enc","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: enc is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"-aes-256-cbc","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: -aes-256-cbc is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"aes-256-cbc -engine","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: aes-256-cbc -engine is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"req","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: req is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"s_client","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: s_client is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"cipher":"/data/x","password":"p","type":"openssl"}}: Invalid: encodeWith.cipher: /data/x is not a cipher of openssl enc; write one such as aes-256-cbc
            {"encodeWith":{"args":"-pbkdf2","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"args":"-pbkdf2 -iter 600000 -md sha512 -salt","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"args":"-md SHA256","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"args":"-aes-256-cbc","password":"p","type":"openssl"}}: accepted
            {"encodeWith":{"args":"-config=/data/evil.cnf","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -config is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-pbkdf2 -config /data/evil.cnf","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -config is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-engine /data/evil.so","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -engine is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-provider-path /data -provider evil","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -provider-path is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"--provider-path=/data","password":"p","type":"openssl"}}: Invalid: encodeWith.args: --provider-path is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-pass file:/etc/passwd","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -pass is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-kfile /etc/passwd","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -kfile is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-out /data/x","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -out is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-rand /data/x","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -rand is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-d","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -d is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-iter 0","password":"p","type":"openssl"}}: Invalid: encodeWith.args: the value of -iter is not a number from 1 to 100000000, ...
            {"encodeWith":{"args":"-iter","password":"p","type":"openssl"}}: Invalid: encodeWith.args: the value of -iter is not a number from 1 to 100000000, ...
            {"encodeWith":{"args":"-iter -md","password":"p","type":"openssl"}}: Invalid: encodeWith.args: the value of -iter is not a number from 1 to 100000000, ...
            {"encodeWith":{"args":"-iter=5","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -iter is not among the options of openssl that run no code and read no file, ...
            {"encodeWith":{"args":"-md /data/x","password":"p","type":"openssl"}}: Invalid: encodeWith.args: the value of -md is not one of blake2b512, blake2s256, md5, ripemd160, rmd160, sha1, sha224, sha256, sha3-224, sha3-256, sha3-384, sha3-512, sha384, sha512, sha512-224, sha512-256, sm3, whirlpool, ...
            {"encodeWith":{"args":"-pbkdf2 -engine","password":"p","type":"openssl"}}: Invalid: encodeWith.args: -pbkdf2 -engine is not among the options of openssl that run no code and read no file, ...
        "#]],
    );
}

#[test]
fn the_ciphers_are_those_of_openssl() {
    let listed = std::process::Command::new("openssl")
        .args(["enc", "-list"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let encrypting: Vec<&str> = listed
        .split_whitespace()
        .filter_map(|name| name.strip_prefix('-'))
        .filter(|name| !name.to_ascii_lowercase().contains("wrap"))
        .collect();
    assert!(encrypting.len() > 50, "{listed}");
    for name in encrypting {
        assert!(openssl::is_cipher(name), "{name}");
    }
}

#[test]
fn tar_split_and_gpg_have_no_options_of_tenants() {
    check_settings(
        &[
            json!({ "compressWith": { "type": "tgz", "args": "--checkpoint-action=exec=/v/x" } }),
            json!({ "compressWith": { "type": "tgz", "args": "--use-compress-program=exec=/v/x" } }),
            json!({ "compressWith": { "type": "tgz", "filenameFormat": "../../../data/x" } }),
            json!({ "compressWith": { "type": "tgz", "filenameFormat": "2006-01-02T15:04:05" } }),
            json!({ "compressWith": { "type": "--to-command=/v/x" } }),
            json!({ "archive": { "includes": ["--checkpoint-action=exec=/v/x"] } }),
            json!({ "splitWith": { "chunkSize": "1 --filter=/v/x" } }),
            json!({ "splitWith": { "chunkSize": "500m" } }),
            encoding(json!({ "type": "gpg" })),
            encoding(json!({ "type": "gpg", "args": "--options /data/x" })),
        ],
        &expect![[r#"
            {"compressWith":{"args":"--checkpoint-action=exec=/v/x","type":"tgz"}}: compressWith.args: not run, because tenants.scripts of the plugin's configuration is off
            {"compressWith":{"args":"--use-compress-program=exec=/v/x","type":"tgz"}}: compressWith.args: not run, because tenants.scripts of the plugin's configuration is off
            {"compressWith":{"filenameFormat":"../../../data/x","type":"tgz"}}: Invalid: compressWith.filenameFormat: a slash in ../../../data/x leads to another directory, ...
            {"compressWith":{"filenameFormat":"2006-01-02T15:04:05","type":"tgz"}}: accepted
            {"compressWith":{"type":"--to-command=/v/x"}}: Invalid: compressWith.type: --to-command=/v/x is unknown to gobackup
            {"archive":{"includes":["--checkpoint-action=exec=/v/x"]}}: Invalid: archive.includes: --checkpoint-action=exec=/v/x is not an absolute path inside a mount in spec.volumes
            {"splitWith":{"chunkSize":"1 --filter=/v/x"}}: Invalid: splitWith.chunkSize: 1 --filter=/v/x is not a size of split; write a number with a unit such as 500m, 2G or 1GB
            {"splitWith":{"chunkSize":"500m"}}: accepted
            {"encodeWith":{"password":"p","type":"gpg"}}: Invalid: encodeWith.type: gpg is unknown to gobackup
            {"encodeWith":{"args":"--options /data/x","password":"p","type":"gpg"}}: Invalid: encodeWith.type: gpg is unknown to gobackup
        "#]],
    );
}

#[test]
fn pg_dump_has_plain_options_alone() {
    check_arguments(
        "postgresql",
        json!({ "database": "shop", "username": "u" }),
        &[
            "--no-owner --no-privileges",
            "--clean --if-exists --format=custom -Fc -Z9 -j 4",
            "--schema=public -n app -tshop.* --exclude-table-data=log",
            "--role=backup -U u",
            "--dbname=sslkey=/v/x.so:k",
            "-d service=x",
            "postgresql://h/shop?ssl%6bey=/v/x.so:k",
            "shop",
            "--file=/data/x",
            "-f /data/x",
            "-f/data/x",
            "--filter=/etc/passwd",
            "--fil=/etc/passwd",
            "--host=sslkey=/v/x.so:k",
            "--role=service=x",
            "--jobs=1000",
            "--format=x",
            "--",
            "-cf",
        ],
        &expect![[r"
            --no-owner --no-privileges: accepted
            --clean --if-exists --format=custom -Fc -Z9 -j 4: accepted
            --schema=public -n app -tshop.* --exclude-table-data=log: accepted
            --role=backup -U u: accepted
            --dbname=sslkey=/v/x.so:k: --dbname is not among the options of pg_dump that run no code and read no file, ...
            -d service=x: -d is not among the options of pg_dump that run no code and read no file, ...
            postgresql://h/shop?ssl%6bey=/v/x.so:k: postgresql://h/shop?ssl%6bey is not among the options of pg_dump that run no code and read no file, ...
            shop: shop is not among the options of pg_dump that run no code and read no file, ...
            --file=/data/x: --file is not among the options of pg_dump that run no code and read no file, ...
            -f /data/x: -f is not among the options of pg_dump that run no code and read no file, ...
            -f/data/x: -f is not among the options of pg_dump that run no code and read no file, ...
            --filter=/etc/passwd: --filter is not among the options of pg_dump that run no code and read no file, ...
            --fil=/etc/passwd: --fil is not among the options of pg_dump that run no code and read no file, ...
            --host=sslkey=/v/x.so:k: the value of --host is not a name, ...
            --role=service=x: the value of --role is not a name, ...
            --jobs=1000: the value of --jobs is not a number from 1 to 64, ...
            --format=x: the value of --format is not one of p, plain, c, custom, d, directory, t, tar, ...
            --: -- is not among the options of pg_dump that run no code and read no file, ...
            -cf: -cf is not among the options of pg_dump that run no code and read no file, ...
        "]],
    );
}

#[test]
fn pg_dumpall_has_plain_options_alone() {
    check_arguments(
        "postgresql",
        json!({ "all_databases": true, "username": "u" }),
        &[
            "--no-role-passwords --exclude-database=a_b -t",
            "--database=sslkey=/v/x.so:k",
            "-d service=x",
            "--file=/data/x",
            "-t x",
            "--no-owner | sh",
            "--role=a;id",
        ],
        &expect![[r"
            --no-role-passwords --exclude-database=a_b -t: accepted
            --database=sslkey=/v/x.so:k: the value of --database is not a name, ...
            -d service=x: -d is not among the options of pg_dumpall that run no code and read no file, ...
            --file=/data/x: --file is not among the options of pg_dumpall that run no code and read no file, ...
            -t x: x is not among the options of pg_dumpall that run no code and read no file, ...
            --no-owner | sh: | is not among the options of pg_dumpall that run no code and read no file, ...
            --role=a;id: False/InvalidReference: Database pg: config.args contains a character that pg_dumpall's shell would act on
        "]],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn mysqldump_has_plain_options_alone() {
    check_arguments(
        "mysql",
        json!({ "database": "shop" }),
        &[
            "--single-transaction --quick --skip-lock-tables --column-statistics=0",
            "--default-character-set=utf8mb4 --set-gtid-purged=OFF --master-data=2",
            "-e -l -d --events --protocol=tcp --port=1 -P3306",
            "--enable-cleartext-plugin --disable-keys --skip-ssl --single_transaction",
            "--ssl-ca=/data/ca.pem --ssl-ca /etc/ssl/certs/ca.pem --ssl-mode=VERIFY_CA",
            "--max-allowed-packet=512M --ignore-table=shop.log",
            "--defaults-file=/data/x",
            "--defaults-extra-file=/data/x",
            "--defaults-e=/data/x",
            "--login-path=x",
            "--plugin-dir=/v",
            "--plugin_dir /v",
            "--pl=/v",
            "--p=/v",
            "--loose-plugin-dir=/v",
            "--skip-loose-pl=/v",
            "--enable-plugin-dir=/v",
            "--skip-defaults-file=/v",
            "--default-auth=x",
            "--init-command=SELECT",
            "--result-file=/data/x",
            "-r/data/x",
            "--tab=/data",
            "--log-error=/data/x",
            "--debug=d:t:o,/data/x",
            "-#d:o,/data/x",
            "--character-sets-dir=/data",
            "--ssl-ca=/etc/passwd",
            "--ssl-ca=/data/../etc/passwd",
            "--ssl-ca=/etc/ssl/../passwd",
            "-psecret",
            "shop",
            "--",
        ],
        &expect![[r"
            --single-transaction --quick --skip-lock-tables --column-statistics=0: accepted
            --default-character-set=utf8mb4 --set-gtid-purged=OFF --master-data=2: accepted
            -e -l -d --events --protocol=tcp --port=1 -P3306: accepted
            --enable-cleartext-plugin --disable-keys --skip-ssl --single_transaction: accepted
            --ssl-ca=/data/ca.pem --ssl-ca /etc/ssl/certs/ca.pem --ssl-mode=VERIFY_CA: accepted
            --max-allowed-packet=512M --ignore-table=shop.log: accepted
            --defaults-file=/data/x: --defaults-file is not among the options of mysqldump that run no code and read no file, ...
            --defaults-extra-file=/data/x: --defaults-extra-file is not among the options of mysqldump that run no code and read no file, ...
            --defaults-e=/data/x: --defaults-e is not among the options of mysqldump that run no code and read no file, ...
            --login-path=x: --login-path is not among the options of mysqldump that run no code and read no file, ...
            --plugin-dir=/v: --plugin-dir is not among the options of mysqldump that run no code and read no file, ...
            --plugin_dir /v: --plugin_dir is not among the options of mysqldump that run no code and read no file, ...
            --pl=/v: --pl is not among the options of mysqldump that run no code and read no file, ...
            --p=/v: --p is not among the options of mysqldump that run no code and read no file, ...
            --loose-plugin-dir=/v: --loose-plugin-dir is not among the options of mysqldump that run no code and read no file, ...
            --skip-loose-pl=/v: --skip-loose-pl is not among the options of mysqldump that run no code and read no file, ...
            --enable-plugin-dir=/v: --enable-plugin-dir is not among the options of mysqldump that run no code and read no file, ...
            --skip-defaults-file=/v: --skip-defaults-file is not among the options of mysqldump that run no code and read no file, ...
            --default-auth=x: --default-auth is not among the options of mysqldump that run no code and read no file, ...
            --init-command=SELECT: --init-command is not among the options of mysqldump that run no code and read no file, ...
            --result-file=/data/x: --result-file is not among the options of mysqldump that run no code and read no file, ...
            -r/data/x: -r is not among the options of mysqldump that run no code and read no file, ...
            --tab=/data: --tab is not among the options of mysqldump that run no code and read no file, ...
            --log-error=/data/x: --log-error is not among the options of mysqldump that run no code and read no file, ...
            --debug=d:t:o,/data/x: --debug is not among the options of mysqldump that run no code and read no file, ...
            -#d:o,/data/x: -# is not among the options of mysqldump that run no code and read no file, ...
            --character-sets-dir=/data: --character-sets-dir is not among the options of mysqldump that run no code and read no file, ...
            --ssl-ca=/etc/passwd: the value of --ssl-ca is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            --ssl-ca=/data/../etc/passwd: the value of --ssl-ca is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            --ssl-ca=/etc/ssl/../passwd: the value of --ssl-ca is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            -psecret: -p is not among the options of mysqldump that run no code and read no file, ...
            shop: shop is not among the options of mysqldump that run no code and read no file, ...
            --: -- is not among the options of mysqldump that run no code and read no file, ...
        "]],
    );
}

#[test]
fn mariadb_backup_has_plain_options_alone() {
    check_arguments(
        "mariadb",
        json!({ "database": "shop" }),
        &[
            "--parallel=4 --datadir=/data",
            "--datadir=/var/lib/mysql",
            "--loose-plugin-dir=/v",
            "--autoset-plugin-dir=/v",
            "--xtrabackup-plugin-dir=/v",
            "--xtrabackup-pl=/v",
            "--extra-lsndir=/v",
            "--rsync",
            "--stream=xbstream",
        ],
        &expect![[r"
            --parallel=4 --datadir=/data: accepted
            --datadir=/var/lib/mysql: the value of --datadir is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            --loose-plugin-dir=/v: --loose-plugin-dir is not among the options of mariadb-backup that run no code and read no file, ...
            --autoset-plugin-dir=/v: --autoset-plugin-dir is not among the options of mariadb-backup that run no code and read no file, ...
            --xtrabackup-plugin-dir=/v: --xtrabackup-plugin-dir is not among the options of mariadb-backup that run no code and read no file, ...
            --xtrabackup-pl=/v: --xtrabackup-pl is not among the options of mariadb-backup that run no code and read no file, ...
            --extra-lsndir=/v: --extra-lsndir is not among the options of mariadb-backup that run no code and read no file, ...
            --rsync: --rsync is not among the options of mariadb-backup that run no code and read no file, ...
            --stream=xbstream: --stream is not among the options of mariadb-backup that run no code and read no file, ...
        "]],
    );
}

#[test]
fn mongodump_has_plain_options_alone() {
    check_arguments(
        "mongodb",
        json!({ "database": "shop" }),
        &[
            "--gzip --numParallelCollections=4 --readPreference=secondary",
            "--ssl --sslCAFile=/data/ca.pem",
            "--config=/etc/passwd",
            "--uri=mongodb://h",
            "--archive=/data/x",
            "--out=/data",
            "-o /data",
            "--queryFile=/etc/passwd",
            "--authenticationMechanism=GSSAPI",
            "--tlsCAFile=/etc/passwd",
        ],
        &expect![[r"
            --gzip --numParallelCollections=4 --readPreference=secondary: accepted
            --ssl --sslCAFile=/data/ca.pem: accepted
            --config=/etc/passwd: --config is not among the options of mongodump that run no code and read no file, ...
            --uri=mongodb://h: --uri is not among the options of mongodump that run no code and read no file, ...
            --archive=/data/x: --archive is not among the options of mongodump that run no code and read no file, ...
            --out=/data: --out is not among the options of mongodump that run no code and read no file, ...
            -o /data: -o is not among the options of mongodump that run no code and read no file, ...
            --queryFile=/etc/passwd: --queryFile is not among the options of mongodump that run no code and read no file, ...
            --authenticationMechanism=GSSAPI: the value of --authenticationMechanism is not one of SCRAM-SHA-1, SCRAM-SHA-256, MONGODB-X509, PLAIN, ...
            --tlsCAFile=/etc/passwd: the value of --tlsCAFile is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
        "]],
    );
}

#[test]
fn redis_cli_has_plain_options_alone() {
    check_arguments(
        "redis",
        json!({ "host": "h" }),
        &[
            "--tls --cacert /data/ca.pem --user backup -n 1",
            "--eval /etc/passwd",
            "--pipe",
            "-x",
            "--functions-rdb /data/x",
            "--cacert /etc/passwd",
            "CONFIG SET dir /data",
        ],
        &expect![[r"
            --tls --cacert /data/ca.pem --user backup -n 1: accepted
            --eval /etc/passwd: --eval is not among the options of redis-cli that run no code and read no file, ...
            --pipe: --pipe is not among the options of redis-cli that run no code and read no file, ...
            -x: -x is not among the options of redis-cli that run no code and read no file, ...
            --functions-rdb /data/x: --functions-rdb is not among the options of redis-cli that run no code and read no file, ...
            --cacert /etc/passwd: the value of --cacert is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            CONFIG SET dir /data: CONFIG is not among the options of redis-cli that run no code and read no file, ...
        "]],
    );
    let mut objects = around();
    for config in [
        json!({ "args_redis": "--eval /etc/passwd" }),
        json!({ "mode": "copy", "rdb_path": "/proc/1/environ" }),
    ] {
        objects[0] = related(
            "Database",
            "pg",
            json!({ "type": "redis", "config": config }),
        );
        let verdict = verdict(&backup(json!({})), &objects);
        assert!(
            verdict.starts_with("False/InvalidReference: Database pg: config."),
            "{verdict}"
        );
    }
}

#[test]
fn the_other_clients_have_plain_options_alone() {
    check_arguments(
        "etcd",
        json!({ "endpoint": "h:2379" }),
        &[
            "--insecure-transport=false --cacert=/data/ca.pem --user root:a=",
            "--cacert=/etc/passwd",
            "--write-out=json",
            "get /",
        ],
        &expect![[r"
            --insecure-transport=false --cacert=/data/ca.pem --user root:a=: accepted
            --cacert=/etc/passwd: the value of --cacert is not a path inside a mount in spec.volumes, or below /etc/ssl, ...
            --write-out=json: --write-out is not among the options of etcdctl that run no code and read no file, ...
            get /: get is not among the options of etcdctl that run no code and read no file, ...
        "]],
    );
    check_arguments(
        "mssql",
        json!({ "database": "shop" }),
        &[
            "/p:CommandTimeout=60 /p:Storage=File /SourceTrustServerCertificate:True",
            "/Profile:/etc/passwd",
            "/DiagnosticsFile:/data/x",
            "/p:TempDirectoryForTableData=/data",
            "@/data/x",
        ],
        &expect![[r"
            /p:CommandTimeout=60 /p:Storage=File /SourceTrustServerCertificate:True: accepted
            /Profile:/etc/passwd: /Profile is not among the options of sqlpackage that run no code and read no file, ...
            /DiagnosticsFile:/data/x: /DiagnosticsFile is not among the options of sqlpackage that run no code and read no file, ...
            /p:TempDirectoryForTableData=/data: /p:TempDirectoryForTableData is not among the options of sqlpackage that run no code and read no file, ...
            @/data/x: @/data/x is not among the options of sqlpackage that run no code and read no file, ...
        "]],
    );
    check_arguments(
        "firebird",
        json!({ "database": "/data/a.fdb" }),
        &["-g -ig", "-y /data/x", "-fetch_password /etc/passwd"],
        &expect![[r"
            -g -ig: accepted
            -y /data/x: -y is not among the options of gbak that run no code and read no file, ...
            -fetch_password /etc/passwd: -fetch_password is not among the options of gbak that run no code and read no file, ...
        "]],
    );
}

/// Values that psql, pg_restore, mysql and sqlite3 would take for options or connection strings.
#[test]
fn values_are_no_options_and_no_connection_strings() {
    let database = |type_: &str, config: Value| {
        related("Database", "pg", json!({ "type": type_, "config": config }))
    };
    let table = [
        database(
            "postgresql",
            json!({ "database": "service=x", "username": "u" }),
        ),
        database(
            "postgresql",
            json!({ "database": "postgres://h/d", "username": "u" }),
        ),
        database(
            "postgresql",
            json!({ "database": "-f/data/x", "username": "u" }),
        ),
        database("postgresql", json!({ "database": "d", "username": "-f" })),
        database(
            "postgresql",
            json!({ "database": "d", "username": "u", "tables": ["-f"] }),
        ),
        database("mysql", json!({ "database": "--plugin-dir=/v" })),
        database(
            "mysql",
            json!({ "database": "d", "host": "h --plugin-dir=/v" }),
        ),
        database("sqlite", json!({ "path": "-cmd" })),
        database("sqlite", json!({ "path": "/data/a\n.shell id" })),
        database("redis", json!({ "host": "--eval" })),
    ];
    let lines = table.map(|object| {
        let mut objects = around();
        objects[0] = object.clone();
        format!(
            "{}: {}\n",
            object["spec"]["config"],
            verdict(&backup(json!({})), &objects)
        )
    });
    expect![[r#"
        {"database":"service=x","username":"u"}: False/InvalidReference: Database pg: config.database is a connection string; name the database alone
        {"database":"postgres://h/d","username":"u"}: False/InvalidReference: Database pg: config.database is a connection string; name the database alone
        {"database":"-f/data/x","username":"u"}: False/InvalidReference: Database pg: config.database begins with a dash, as an option does
        {"database":"d","username":"-f"}: False/InvalidReference: Database pg: config.username begins with a dash, as an option does
        {"database":"d","tables":["-f"],"username":"u"}: False/InvalidReference: Database pg: config.tables begins with a dash, as an option does
        {"database":"--plugin-dir=/v"}: False/InvalidReference: Database pg: config.database begins with a dash, as an option does
        {"database":"d","host":"h --plugin-dir=/v"}: False/InvalidReference: Database pg: config.host contains white space, which gobackup cannot pass on
        {"path":"-cmd"}: False/InvalidReference: Database pg: config.path begins with a dash, as an option does
        {"path":"/data/a\n.shell id"}: False/InvalidReference: Database pg: config.path contains white space, which gobackup cannot pass on
        {"host":"--eval"}: False/InvalidReference: Database pg: config.host begins with a dash, as an option does
    "#]].assert_eq(&lines.concat());
}

#[test]
fn a_restore_has_the_same_rules() {
    let verdict = |settings: Value, args: Option<&str>| {
        let mut objects = restore::ran();
        objects[3]["spec"]["encodeWith"] = encoding(settings)["encodeWith"].clone();
        if let Some(args) = args {
            objects[0]["spec"]["config"]["args"] = json!(args);
        }
        let request = TestRequest::new(&restore::restore(json!({}))).build();
        let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
        match outcome.child("restore") {
            Some(_) => "accepted".to_owned(),
            None => condition(outcome.report(), "Ready").replace(OFF, ", ..."),
        }
    };
    expect![[r"
        accepted
        False/InvalidReference: Backup nightly: encodeWith.cipher: cms is not a cipher of openssl enc; write one such as aes-256-cbc
        False/InvalidReference: Backup nightly: encodeWith.args: -config is not among the options of openssl that run no code and read no file, ...
        False/InvalidReference: Database pg: config.args: --file is not among the options of pg_dump that run no code and read no file, ..."]].assert_eq(
        &[
            verdict(
                json!({ "cipher": "aes-128-cbc", "args": "-pbkdf2 -iter 5" }),
                None,
            ),
            verdict(json!({ "cipher": "cms" }), None),
            verdict(json!({ "args": "-config=/data/evil.cnf" }), None),
            verdict(json!({}), Some("--file=/data/x")),
        ]
        .join("\n"),
    );
}
