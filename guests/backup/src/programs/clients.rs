//! The clients for MongoDB, Redis, etcd, SQL Server and Firebird.

use super::{Program, Syntax, Value};

/// `mongodump`. `--config` reads a file, and `--archive` and `--out` write one.
pub(crate) const MONGODUMP: Program = Program::new(
    "mongodump",
    Syntax::Getopt,
    &[
        (
            Value::None,
            "-v --verbose --dumpDbUsersAndRoles --forceTableScan --gzip --ipv6 --quiet --ssl \
             --sslAllowInvalidCertificates --sslAllowInvalidHostnames --tls --tlsInsecure \
             --viewsAsCollections",
        ),
        (
            Value::Name,
            "--authenticationDatabase -c --collection --compressors --excludeCollection \
             --excludeCollectionsWithPrefix",
        ),
        (
            Value::Choice("SCRAM-SHA-1 SCRAM-SHA-256 MONGODB-X509 PLAIN"),
            "--authenticationMechanism",
        ),
        (
            Value::Choice("primary primaryPreferred secondary secondaryPreferred nearest"),
            "--readPreference",
        ),
        (
            Value::Path,
            "--sslCAFile --sslCRLFile --sslPEMKeyFile --tlsCAFile --tlsCertificateKeyFile",
        ),
        (Value::Number(1, 64), "-j --numParallelCollections"),
        // gobackup splits it at white space, so it has none.
        (Value::Text, "--query"),
    ],
);

/// `redis-cli`. Other words are server commands, and `--eval`, `--pipe` and `-x` read files.
pub(crate) const REDIS_CLI: Program = Program::new(
    "redis-cli",
    Syntax::Words,
    &[
        (Value::None, "-2 -3 --insecure --no-auth-warning --tls"),
        (Value::Name, "--sni --user"),
        (Value::Path, "--cacert --cacertdir --cert --key"),
        (Value::Number(0, 65535), "-n -t"),
    ],
);

/// `etcdctl`.
pub(crate) const ETCDCTL: Program = Program::new(
    "etcdctl",
    Syntax::Getopt,
    &[
        (
            Value::Switch,
            "--debug --insecure-skip-tls-verify --insecure-transport",
        ),
        (
            Value::Name,
            "--command-timeout --dial-timeout --keepalive-time --keepalive-timeout",
        ),
        (Value::Text, "--password --user"),
        (Value::Path, "--cacert --cert --key"),
    ],
);

/// `sqlpackage`, as the manual spells the options. `/Profile` and `/DiagnosticsFile` name files.
pub(crate) const SQLPACKAGE: Program = Program::new(
    "sqlpackage",
    Syntax::Colon,
    &[
        (
            Value::Switch,
            "/Quiet /q /SourceTrustServerCertificate /stsc",
        ),
        (
            Value::Choice("Optional Mandatory Strict True False"),
            "/SourceEncryptConnection /sec",
        ),
        (Value::Name, "/SourceHostNameInCertificate /shnic"),
        (Value::Number(1, 64), "/MaxParallelism /mp"),
        (Value::Number(1, 65535), "/SourceTimeout /st"),
        (
            Value::Number(0, 604_800),
            "/p:CommandTimeout /p:DatabaseLockTimeout /p:LongRunningCommandTimeout",
        ),
        (
            Value::Choice("Normal Maximum Fast SuperFast NotCompressed"),
            "/p:CompressionOption",
        ),
        (Value::Choice("File Memory"), "/p:Storage"),
        (
            Value::Choice("Default Latest V11 V12"),
            "/p:TargetEngineVersion",
        ),
        (Value::Name, "/p:TableData"),
        (Value::Switch, "/p:VerifyExtraction"),
    ],
);

/// `gbak`. `-y` writes a file, and `-fetch_password` reads one.
pub(crate) const GBAK: Program = Program::new(
    "gbak",
    Syntax::Words,
    &[(
        Value::None,
        "-expand -g -garbage_collect -ig -ignore -l -limbo -nt -t -transportable -v \
             -verify",
    )],
);
