//! The PostgreSQL clients.
//!
//! Not listed: `-d` and `--dbname`, because a connection string can name a key's engine, which is code; `--file`, which
//! writes any file; `--filter`, which reads one.

use super::{Program, Syntax, Value};

/// Dump formats.
const FORMATS: &str = "p plain c custom d directory t tar";

/// `pg_dump`.
pub(crate) const PG_DUMP: Program = Program::new(
    "pg_dump",
    Syntax::Getopt,
    &[
        (
            Value::None,
            "-a --data-only -b --large-objects --blobs -B --no-large-objects --no-blobs -c \
             --clean -C --create -O --no-owner -s --schema-only -v --verbose -w --no-password \
             -x --no-privileges --no-acl --attribute-inserts --binary-upgrade \
             --column-inserts --disable-dollar-quoting --disable-triggers \
             --enable-row-security --if-exists --inserts --load-via-partition-root \
             --no-comments --no-data --no-policies --no-publications --no-schema \
             --no-security-labels --no-statistics --no-subscriptions --no-sync \
             --no-synchronized-snapshots --no-table-access-method --no-tablespaces \
             --no-toast-compression --no-unlogged-table-data --on-conflict-do-nothing \
             --quote-all-identifiers --sequence-data --serializable-deferrable --statistics \
             --statistics-only --strict-names --use-set-session-authorization",
        ),
        (
            Value::Name,
            "-e --extension --exclude-extension -E --encoding -h --host -n --schema -N \
             --exclude-schema -S --superuser -t --table --table-and-children -T \
             --exclude-table --exclude-table-and-children --exclude-table-data \
             --exclude-table-data-and-children -U --username -Z --compress \
             --lock-wait-timeout --restrict-key --role --snapshot",
        ),
        (Value::Choice(FORMATS), "-F --format"),
        (Value::Choice("pre-data data post-data"), "--section"),
        (Value::Choice("fsync syncfs"), "--sync-method"),
        (Value::Number(1, 64), "-j --jobs"),
        (Value::Number(1, 65535), "-p --port"),
        (Value::Number(0, 3), "--extra-float-digits"),
        (Value::Number(1, 1_000_000), "--rows-per-insert"),
    ],
);

/// `pg_dumpall`, whose `-t` has no value.
pub(crate) const PG_DUMPALL: Program = Program::new(
    "pg_dumpall",
    Syntax::Getopt,
    &[
        (
            Value::None,
            "-a --data-only -c --clean -g --globals-only -O --no-owner -r --roles-only -s \
             --schema-only -t --tablespaces-only -v --verbose -w --no-password -x \
             --no-privileges --no-acl --attribute-inserts --binary-upgrade --column-inserts \
             --disable-dollar-quoting --disable-triggers --if-exists --inserts \
             --load-via-partition-root --no-comments --no-data --no-policies \
             --no-publications --no-role-passwords --no-schema --no-security-labels \
             --no-statistics --no-subscriptions --no-sync --no-table-access-method \
             --no-tablespaces --no-toast-compression --no-unlogged-table-data \
             --on-conflict-do-nothing --quote-all-identifiers --sequence-data --statistics \
             --statistics-only --use-set-session-authorization",
        ),
        (
            Value::Name,
            "-E --encoding --exclude-database -h --host -l --database -S --superuser -U \
             --username --lock-wait-timeout --restrict-key --role",
        ),
        (Value::Number(1, 65535), "-p --port"),
        (Value::Number(0, 3), "--extra-float-digits"),
        (Value::Number(1, 1_000_000), "--rows-per-insert"),
    ],
);
