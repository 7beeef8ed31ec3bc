//! What gobackup knows: types of databases and storages, and the keys of each.
//!
//! One table drives both the schema of `Database` and `Storage` and the renderer, so that they
//! cannot disagree. Nothing is rendered here.

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Number,
    Flag,
    Texts,
}

/// One key of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Never written into the configuration; `<name>_ref` names a Secret instead.
    pub(crate) is_secret: bool,
    pub(crate) is_required: bool,
}

impl Key {
    const fn new(name: &'static str, form: Form) -> Self {
        Self {
            name,
            form,
            is_secret: false,
            is_required: false,
        }
    }

    const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Whether `<name>_ref` exists.
    pub(crate) fn has_twin(&self) -> bool {
        self.is_secret || self.name == "username"
    }
}

const fn text(name: &'static str) -> Key {
    Key::new(name, Form::Text)
}

const fn number(name: &'static str) -> Key {
    Key::new(name, Form::Number)
}

const fn flag(name: &'static str) -> Key {
    Key::new(name, Form::Flag)
}

const fn texts(name: &'static str) -> Key {
    Key::new(name, Form::Texts)
}

const fn secret(name: &'static str) -> Key {
    let mut key = Key::new(name, Form::Text);
    key.is_secret = true;
    key
}

/// One type of database or storage.
#[derive(Debug)]
pub(crate) struct Type {
    /// As users write it.
    pub(crate) name: &'static str,
    /// As gobackup knows it.
    pub(crate) rendered: &'static str,
    /// gobackup splits its command line at white space.
    pub(crate) splits_command: bool,
    /// An object store that speaks S3 or a like of it.
    pub(crate) is_s3_like: bool,
    /// Keys that all types of the family have.
    common: &'static [Key],
    own: &'static [Key],
}

impl Type {
    const fn database(name: &'static str, own: &'static [Key]) -> Self {
        Self {
            name,
            rendered: name,
            splits_command: false,
            is_s3_like: false,
            common: ALL_DATABASES,
            own,
        }
    }

    const fn storage(name: &'static str, own: &'static [Key]) -> Self {
        Self {
            name,
            rendered: name,
            splits_command: false,
            is_s3_like: false,
            common: ALL_STORAGES,
            own,
        }
    }

    const fn object_store(name: &'static str, own: &'static [Key]) -> Self {
        let mut type_ = Self::storage(name, own);
        type_.is_s3_like = true;
        type_
    }

    const fn splitting_command(mut self) -> Self {
        self.splits_command = true;
        self
    }

    const fn rendered_as(mut self, rendered: &'static str) -> Self {
        self.rendered = rendered;
        self
    }

    /// Every key but `type`.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.own.iter().chain(self.common)
    }

    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// The key that `<key>_ref` stands for.
    pub(crate) fn key_of_twin(&self, name: &str) -> Option<&'static Key> {
        let key = self.key(name.strip_suffix("_ref")?)?;
        key.has_twin().then_some(key)
    }

    /// Whether gobackup finds what it stored earlier without a volume of its own.
    ///
    /// It is the signed URL that makes the state readable on the storage; upyun has none.
    pub(crate) fn keeps_its_state(&self) -> bool {
        self.is_s3_like && self.name != "upyun"
    }
}

const ALL_DATABASES: &[Key] = &[text("before_script"), text("after_script"), text("on_exit")];

const MYSQL: &[Key] = &[
    text("host"),
    number("port"),
    text("socket"),
    text("database"),
    flag("all_databases"),
    text("username"),
    secret("password"),
    texts("tables"),
    texts("exclude_tables"),
    text("args"),
];

const INFLUXDB: &[Key] = &[
    text("host").required(),
    secret("token").required(),
    text("bucket"),
    text("bucket_id"),
    flag("all_databases"),
    text("org"),
    text("org_id"),
    flag("skip_verify"),
    flag("http_debug"),
];

/// Every type of database.
pub(crate) const DATABASES: &[Type] = &[
    Type::database(
        "postgresql",
        &[
            text("host"),
            number("port"),
            text("socket"),
            text("database"),
            flag("all_databases"),
            text("username"),
            secret("password"),
            texts("tables"),
            texts("exclude_tables"),
            text("compress"),
            text("args"),
        ],
    ),
    Type::database("mysql", MYSQL).splitting_command(),
    Type::database(
        "mariadb",
        &[
            text("host"),
            number("port"),
            text("socket"),
            text("database"),
            flag("all_databases"),
            text("username"),
            secret("password"),
            text("args"),
        ],
    )
    .splitting_command(),
    Type::database(
        "mongodb",
        &[
            secret("uri"),
            text("host"),
            number("port"),
            text("database"),
            flag("all_databases"),
            text("username"),
            secret("password"),
            text("authdb"),
            texts("exclude_tables"),
            texts("exclude_tables_prefix"),
            flag("oplog"),
            text("args"),
        ],
    )
    .splitting_command(),
    Type::database(
        "redis",
        &[
            text("mode"),
            text("host"),
            number("port"),
            text("socket"),
            secret("password"),
            flag("invoke_save"),
            text("rdb_path"),
            text("args"),
        ],
    )
    .splitting_command(),
    Type::database(
        "mssql",
        &[
            text("host"),
            number("port"),
            text("database"),
            flag("all_databases"),
            text("username"),
            secret("password"),
            flag("trust_server_certificate"),
            texts("skip_databases"),
            text("args"),
        ],
    )
    .splitting_command(),
    Type::database("influxdb", INFLUXDB).rendered_as("influxdb2"),
    Type::database("influxdb2", INFLUXDB),
    Type::database("etcd", &[text("endpoint").required(), text("args")]).splitting_command(),
    Type::database("sqlite", &[text("path").required()]),
    Type::database(
        "firebird",
        &[
            text("host"),
            number("port"),
            text("database").required(),
            text("username"),
            secret("password"),
            text("role"),
            text("args"),
        ],
    )
    .splitting_command(),
];

const ALL_STORAGES: &[Key] = &[text("path"), number("keep")];

const SSH: &[Key] = &[
    text("host").required(),
    number("port"),
    text("username").required(),
    secret("password"),
    secret("private_key"),
    secret("passphrase"),
    number("timeout"),
];

const S3_LIKE: &[Key] = &[
    text("bucket").required(),
    text("region"),
    text("endpoint"),
    secret("access_key_id").required(),
    secret("secret_access_key").required(),
    secret("token"),
    text("storage_class"),
    flag("force_path_style"),
    number("max_retries"),
    number("timeout"),
];

const R2: &[Key] = &[
    text("bucket").required(),
    text("account_id"),
    text("region"),
    text("endpoint"),
    secret("access_key_id").required(),
    secret("secret_access_key").required(),
    secret("token"),
    text("storage_class"),
    flag("force_path_style"),
    number("max_retries"),
    number("timeout"),
];

/// Every type of storage.
pub(crate) const STORAGES: &[Type] = &[
    Type::storage("local", &[text("path").required()]),
    Type::storage(
        "ftp",
        &[
            text("host").required(),
            number("port"),
            text("username").required(),
            secret("password").required(),
            number("timeout"),
            flag("tls"),
            flag("explicit_tls"),
            flag("no_check_certificate"),
        ],
    ),
    Type::storage("sftp", SSH),
    Type::storage("scp", SSH),
    Type::storage(
        "webdav",
        &[
            text("root").required(),
            text("username"),
            secret("password"),
        ],
    ),
    Type::object_store("s3", S3_LIKE),
    Type::object_store("oss", S3_LIKE),
    Type::storage(
        "gcs",
        &[
            text("bucket").required(),
            secret("credentials"),
            text("credentials_file"),
            number("timeout"),
        ],
    ),
    Type::storage(
        "azure",
        &[
            text("account").required(),
            text("container"),
            text("tenant_id").required(),
            text("client_id").required(),
            secret("client_secret").required(),
            number("timeout"),
        ],
    ),
    Type::object_store("r2", R2),
    Type::object_store("spaces", S3_LIKE),
    Type::object_store("b2", S3_LIKE),
    Type::object_store("cos", S3_LIKE),
    Type::object_store("us3", S3_LIKE),
    Type::object_store("kodo", S3_LIKE),
    Type::object_store("bos", S3_LIKE),
    Type::object_store("minio", S3_LIKE),
    Type::object_store("obs", S3_LIKE),
    Type::object_store("tos", S3_LIKE),
    Type::object_store("upyun", S3_LIKE),
];

/// Keys that only manifests of the second generation have, beside those of the types.
pub(crate) const OLD_DATABASE_KEYS: &[Key] = &[
    text("auth_db"),
    text("args_redis"),
    flag("sync"),
    flag("copy"),
    texts("endpoints"),
];

/// The type of a family by its name.
pub(crate) fn find(family: &'static [Type], name: &str) -> Option<&'static Type> {
    family.iter().find(|it| it.name == name)
}

/// Database types that tables can be chosen for; mariadb and mssql accept and ignore it, because
/// older manifests carry it.
const WITH_TABLES: &[&str] = &["postgresql", "mysql", "mariadb", "mssql"];
const WITH_EXCLUDED_TABLES: &[&str] = &["postgresql", "mysql", "mariadb", "mongodb", "mssql"];
const REDIS: &[&str] = &["redis"];
const INFLUX: &[&str] = &["influxdb", "influxdb2"];

/// Keys that are refused with other types: `(key, types)`.
///
/// Those of the second generation come first; the rest did not exist there, so that no older
/// manifest can carry them by mistake.
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
