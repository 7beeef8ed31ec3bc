//! The clients for MySQL and MariaDB.
//!
//! Not listed: settings files (`--defaults-file`, `--login-path`), plugins (`--plugin-dir`, `--default-auth`),
//! statements (`--init-command`) and output files (`--result-file`, `--tab`, `--debug`, `--log-error`).

use super::{Program, Syntax, Value};

/// The files with keys and certificates.
const TLS_FILES: &str =
    "--server-public-key-path --ssl-ca --ssl-capath --ssl-cert --ssl-crl --ssl-crlpath --ssl-key";

/// TLS settings whose values are names.
const TLS_NAMES: &str = "--ssl-cipher --ssl-fips-mode --ssl-fp --ssl-mode --tls-ciphersuites --tls-sni-servername \
     --tls-version";

/// Connection switches.
const CONNECTION: &str =
    "--compress --enable-cleartext-plugin --get-server-public-key --ssl --ssl-verify-server-cert";

/// `mysqldump`.
pub(crate) const MYSQLDUMP: Program = Program::new(
    "mysqldump",
    Syntax::MySql,
    &[
        (
            Value::None,
            "-A -a -B -C -c -d -E -e -F -f -i -K -l -N -n -Q -q -R -t -v -X -x -Y -y",
        ),
        (
            Value::Switch,
            "--add-drop-database --add-drop-table --add-drop-trigger --add-drop-user \
             --add-locks --all-databases --all-tablespaces --allow-keywords \
             --apply-replica-statements --apply-slave-statements --column-statistics \
             --comments --compact --complete-insert --copy-s3-tables --create-options \
             --databases --delayed-insert --disable-keys --dump-date --dump-history --events \
             --extended-insert --flush-logs --flush-privileges --force --gtid --hex-blob \
             --include-master-host-port --include-source-host-port --insert-ignore --keys \
             --lock-all-tables --lock-tables --no-autocommit --no-create-db --no-create-info \
             --no-data --no-data-med --no-set-names --no-tablespaces --opt --order-by-primary \
             --order-by-size --quick --quote-names --replace --routines --set-charset \
             --show-create-skip-secondary-engine --single-transaction --triggers --tz-utc \
             --verbose --xml",
        ),
        (Value::Switch, CONNECTION),
        (
            Value::OptionalNumber(0, 2),
            "--dump-replica --dump-slave --master-data --source-data",
        ),
        (
            Value::Name,
            "--compatible --compression-algorithms --default-character-set --ignore-database \
             --ignore-error --ignore-table --ignore-table-data --set-gtid-purged --system",
        ),
        (Value::Name, TLS_NAMES),
        (Value::Path, TLS_FILES),
        (Value::Choice("tcp socket"), "--protocol"),
        (Value::Number(1, 65535), "-P --port"),
        (Value::Number(1, 22), "--zstd-compression-level"),
        (Value::Size, "--max-allowed-packet --net-buffer-length"),
        // gobackup splits it at white space, so it has none.
        (Value::Text, "--where"),
    ],
);

/// `mariadb-backup`.
pub(crate) const MARIADB_BACKUP: Program = Program::new(
    "mariadb-backup",
    Syntax::MySql,
    &[
        (
            Value::Switch,
            "--check-privileges --close-files --galera-info --lock-ddl-per-table \
             --no-backup-locks --no-lock --safe-slave-backup --slave-info --verbose",
        ),
        (Value::Switch, CONNECTION),
        (
            Value::Name,
            "--databases --databases-exclude --tables --tables-exclude",
        ),
        (Value::Name, TLS_NAMES),
        (Value::Path, "--datadir"),
        (Value::Path, TLS_FILES),
        (Value::Choice("tcp socket"), "--protocol"),
        (
            Value::Choice("all update select"),
            "--ftwrl-wait-query-type --kill-long-query-type",
        ),
        (Value::Number(1, 64), "--compress-threads --parallel"),
        (
            Value::Number(0, 1_000_000),
            "--ftwrl-wait-threshold --ftwrl-wait-timeout --kill-long-queries-timeout \
             --lock-wait-timeout --log-copy-interval --open-files-limit \
             --safe-slave-backup-timeout --throttle",
        ),
    ],
);

/// Returns the options with which mysqldump dumps a whole database at one moment: by default it leaves out routines and
/// events, and locks each table alone. The user's options come later, where they win.
///
/// mysqldump refuses `--single-transaction` beside `--lock-all-tables`. Routines and events belong to no table, so a
/// dump of some tables has none.
pub(crate) fn whole(args: &str, has_tables: bool) -> String {
    let mut options = Vec::new();
    let mut words = args.split_whitespace();
    if !words.any(|word| word.starts_with("--lock") || matches!(word, "-l" | "-x")) {
        options.push("--single-transaction");
    }
    if !has_tables {
        options.extend(["--routines", "--events"]);
    }
    options.push("--triggers");
    if !args.is_empty() {
        options.push(args);
    }
    options.join(" ")
}
