//! The types of databases.

use super::{Form, Key, Type, flag, secret, text, texts};

const BEFORE_SCRIPT: Key = text(
    "before_script",
    "Script for sh to run before the dump of this database. If it fails, the run fails.",
);
const AFTER_SCRIPT: Key = text(
    "after_script",
    "Script for sh to run after the dump of this database and before the check of the dump. If it \
     fails, the run fails. After a failed dump it runs only if on_exit is always or failure.",
);
const ON_EXIT: Key = Key::new(
    "on_exit",
    Form::Choice(&["always", "success", "failure"]),
    "Use of after_script after a failed dump: always and failure run it, success skips it. After a \
     successful dump it always runs. Default: success.",
);
const HOST: Key = text(
    "host",
    "Host name or address of the server. Default: localhost for postgresql, 127.0.0.1 for mysql, \
     mariadb, mongodb, redis, mssql and firebird. Required for influxdb and influxdb2, as a URL; \
     without a scheme it becomes http://HOST:PORT.",
);
const PORT: Key = Key::new(
    "port",
    Form::Port,
    "TCP port of the server. Default: 5432 for postgresql, 3306 for mysql and mariadb, 27017 for \
     mongodb, 6379 for redis, 1433 for mssql, 3050 for firebird. For influxdb and influxdb2 it is \
     used only if host has no scheme; default 8086.",
);
const SOCKET: Key = text(
    "socket",
    "Path of the server's Unix socket, used instead of host and port. For postgresql, mysql, \
     mariadb and redis.",
);
const DATABASE: Key = text(
    "database",
    "Name of the database to dump. Required for firebird, and for postgresql, mysql, mariadb and \
     mssql unless all_databases is true.",
);
const ALL_DATABASES: Key = flag(
    "all_databases",
    "Dump all databases of the server, for influxdb and influxdb2 all buckets. Default: false, but \
     true for mongodb if neither database nor uri is set.",
);
const USERNAME: Key = text(
    "username",
    "User name. Default: root for mysql and mariadb, sa for mssql, sysdba for firebird. A run for \
     postgresql fails without one, because its own user has no name. username_ref takes it from a \
     Secret.",
);
const PASSWORD: Key = secret(
    "password",
    "Password in clear text; prefer password_ref. Default: masterkey for firebird.",
);
const INCLUDED_TABLES: Key = texts(
    "tables",
    "Names of the tables to dump; all tables if empty. For postgresql and mysql; mariadb and mssql \
     ignore it. With all_databases, mysql rejects it and postgresql ignores it.",
);
const EXCLUDED_TABLES: Key = texts(
    "exclude_tables",
    "Names of the tables, for mongodb of the collections, to leave out of the dump. For \
     postgresql, mysql and mongodb; mariadb and mssql ignore it. With all_databases, mysql and \
     mongodb reject it and postgresql ignores it.",
);
const COMPRESS: Key = text(
    "compress",
    "Compression of the dump in the form of `pg_dump --compress`, for example zstd:9. It starts \
     with gzip, lz4 or zstd. For postgresql.",
);
const ARGS: Key = text(
    "args",
    "Additional options for the dump tool: pg_dump, mysqldump, mariadb-backup, mongodump, \
     redis-cli, sqlpackage, etcdctl or gbak. White space separates them.",
);
const URI: Key = secret(
    "uri",
    "Connection URI of MongoDB in clear text; prefer uri_ref. gobackup then ignores host, port, \
     username, password and database.",
);
const AUTHDB: Key = text(
    "authdb",
    "MongoDB database that holds the user's credentials.",
);
const EXCLUDED_TABLE_PREFIXES: Key = texts(
    "exclude_tables_prefix",
    "Prefixes of the names of MongoDB collections to leave out of the dump.",
);
const OPLOG: Key = flag(
    "oplog",
    "Include the MongoDB oplog, for a dump of one point in time. Default: false. The plugin leaves \
     it out, with a warning, unless all_databases is true.",
);
const MODE: Key = Key::new(
    "mode",
    Form::Choice(&["copy", "sync"]),
    "Kind of Redis dump: sync reads the data from the server, copy copies the file rdb_path, which \
     must be in a mount of the Backup's spec.volumes. Default: sync.",
);
const INVOKE_SAVE: Key = flag(
    "invoke_save",
    "Run the Redis command SAVE before the dump. Default: true. Ignored in mode copy.",
);
const RDB_PATH: Key = text(
    "rdb_path",
    "Path of the Redis dump file, for mode copy. Default: /var/db/redis/dump.rdb.",
);
const TRUST_SERVER_CERTIFICATE: Key = flag(
    "trust_server_certificate",
    "Accept the TLS certificate of SQL Server without verification. Default: false.",
);
const SKIP_DATABASES: Key = texts(
    "skip_databases",
    "Names of the databases to leave out if all_databases is true. For mssql.",
);
const TOKEN: Key = secret(
    "token",
    "API token of InfluxDB in clear text; prefer token_ref. One of the two is required for \
     influxdb and influxdb2.",
);
const BUCKET: Key = text(
    "bucket",
    "Name of the InfluxDB bucket to dump. Required unless bucket_id is set or all_databases is true.",
);
const BUCKET_ID: Key = text(
    "bucket_id",
    "ID of the InfluxDB bucket to dump, instead of bucket.",
);
const ORG: Key = text("org", "Name of the InfluxDB organization of the bucket.");
const ORG_ID: Key = text("org_id", "ID of the InfluxDB organization, instead of org.");
const SKIP_VERIFY: Key = flag(
    "skip_verify",
    "Accept the TLS certificate of InfluxDB without verification. Default: false.",
);
const HTTP_DEBUG: Key = flag(
    "http_debug",
    "Print the HTTP communication with InfluxDB. Default: false.",
);
const ENDPOINT: Key = text(
    "endpoint",
    "Address of an etcd member, as HOST:PORT. The plugin removes a scheme; https adds \
     --insecure-transport=false to args. Required for etcd.",
);
const PATH: Key = text(
    "path",
    "Path of the SQLite file in the container; a mount of the Backup's spec.volumes must provide \
     it. Required for sqlite.",
);
const ROLE: Key = text("role", "SQL role of the Firebird connection.");

const ALL: &[Key] = &[BEFORE_SCRIPT, AFTER_SCRIPT, ON_EXIT];

const SQL: &[Key] = &[
    HOST,
    PORT,
    SOCKET,
    DATABASE,
    ALL_DATABASES,
    USERNAME,
    PASSWORD,
    ARGS,
];

const TABLES: &[Key] = &[INCLUDED_TABLES, EXCLUDED_TABLES];

const INFLUXDB: &[Key] = &[
    HOST.required(),
    TOKEN.required(),
    BUCKET,
    BUCKET_ID,
    ALL_DATABASES,
    ORG,
    ORG_ID,
    SKIP_VERIFY,
    HTTP_DEBUG,
];

const fn database(name: &'static str, own: &'static [&'static [Key]]) -> Type {
    Type::new(name, ALL, own)
}

const fn splitting_command(mut type_: Type) -> Type {
    type_.splits_command = true;
    type_
}

/// Every type of database.
pub(crate) const DATABASES: &[Type] = &[
    splitting_command(database("postgresql", &[SQL, TABLES, &[COMPRESS]])),
    splitting_command(database("mysql", &[SQL, TABLES])),
    splitting_command(database("mariadb", &[SQL])),
    splitting_command(database(
        "mongodb",
        &[&[
            URI,
            HOST,
            PORT,
            DATABASE,
            ALL_DATABASES,
            USERNAME,
            PASSWORD,
            AUTHDB,
            EXCLUDED_TABLES,
            EXCLUDED_TABLE_PREFIXES,
            OPLOG,
            ARGS,
        ]],
    )),
    splitting_command(database(
        "redis",
        &[&[
            MODE,
            HOST,
            PORT,
            SOCKET,
            PASSWORD,
            INVOKE_SAVE,
            RDB_PATH,
            ARGS,
        ]],
    )),
    splitting_command(database(
        "mssql",
        &[&[
            HOST,
            PORT,
            DATABASE,
            ALL_DATABASES,
            USERNAME,
            PASSWORD,
            TRUST_SERVER_CERTIFICATE,
            SKIP_DATABASES,
            ARGS,
        ]],
    )),
    Type {
        rendered: "influxdb2",
        ..database("influxdb", &[INFLUXDB])
    },
    database("influxdb2", &[INFLUXDB]),
    splitting_command(database("etcd", &[&[ENDPOINT.required(), ARGS]])),
    splitting_command(database("sqlite", &[&[PATH.required()]])),
    splitting_command(database(
        "firebird",
        &[&[
            HOST,
            PORT,
            DATABASE.required(),
            USERNAME,
            PASSWORD,
            ROLE,
            ARGS,
        ]],
    )),
];

/// Keys of manifests of the second generation that gobackup does not have; the renderer translates
/// them.
pub(crate) const OLD_DATABASE_KEYS: &[Key] = &[
    text("auth_db", "Older name of authdb."),
    text("args_redis", "Older name of args for redis."),
    flag("sync", "Older form of mode: sync. Ignored if mode is set."),
    flag(
        "copy",
        "Older form of mode: copy. Ignored if mode is set or sync is true.",
    ),
    texts(
        "endpoints",
        "Older form of endpoint; only the first address is used. Ignored if endpoint is set.",
    ),
];

/// Database types with a choice of tables. mariadb and mssql accept and ignore the key, because
/// older manifests carry it.
const WITH_TABLES: &[&str] = &["postgresql", "mysql", "mariadb", "mssql"];
const WITH_EXCLUDED_TABLES: &[&str] = &["postgresql", "mysql", "mariadb", "mongodb", "mssql"];
const REDIS: &[&str] = &["redis"];
const INFLUX: &[&str] = &["influxdb", "influxdb2"];

/// Keys that are rejected with all other types: `(key, types)`.
///
/// Those of the second generation come first. The rest did not exist there, so no older manifest can
/// carry them by mistake.
pub(crate) const EXCLUSIVE: &[(&str, &[&str])] = &[
    ("mode", REDIS),
    ("sync", REDIS),
    ("copy", REDIS),
    ("invoke_save", REDIS),
    ("rdb_path", REDIS),
    ("args_redis", REDIS),
    ("auth_db", &["mongodb"]),
    ("oplog", &["mongodb"]),
    ("trust_server_certificate", &["mssql"]),
    ("token", INFLUX),
    ("token_ref", INFLUX),
    ("bucket", INFLUX),
    ("org", INFLUX),
    ("endpoints", &["etcd"]),
    ("tables", WITH_TABLES),
    ("exclude_tables", WITH_EXCLUDED_TABLES),
    (
        "all_databases",
        &[
            "postgresql",
            "mysql",
            "mariadb",
            "mongodb",
            "mssql",
            "influxdb",
            "influxdb2",
        ],
    ),
    ("authdb", &["mongodb"]),
    ("bucket_id", INFLUX),
    ("compress", &["postgresql"]),
    ("endpoint", &["etcd"]),
    ("exclude_tables_prefix", &["mongodb"]),
    ("http_debug", INFLUX),
    ("org_id", INFLUX),
    ("role", &["firebird"]),
    ("skip_databases", &["mssql"]),
    ("skip_verify", INFLUX),
    ("uri", &["mongodb"]),
    ("uri_ref", &["mongodb"]),
];
