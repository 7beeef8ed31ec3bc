//! The types of storages.

use super::{Form, Key, Type, flag, number, secret, text};

const PATH: Key = text(
    "path",
    "Directory, or prefix of the object keys, for the archives. For local it is required and is an \
     absolute path in the container. A path in the Backup's storageRefs is below it.",
);
const KEEP: Key = number(
    "keep",
    "Number of archives to keep; gobackup deletes older ones. 0 keeps all. Default: 0. A value \
     above 0 in the Backup's storageRefs overrides it.",
);
const TIMEOUT: Key = number(
    "timeout",
    "Timeout in seconds, for object stores of an upload, for ftp, sftp and scp of the connection. \
     Default: 300. A value above 0 in the Backup's storageRefs overrides it.",
);
const HOST: Key = text(
    "host",
    "Host name or address of the server. Required for ftp, sftp and scp.",
);
const PORT: Key = Key::new(
    "port",
    Form::Port,
    "TCP port of the server. Default: 21 for ftp, 22 for sftp and scp.",
);
const USERNAME: Key = text(
    "username",
    "User name. Required for ftp, sftp and scp, optional for webdav. username_ref takes it from a \
     Secret.",
);
const PASSWORD: Key = secret(
    "password",
    "Password in clear text; prefer password_ref. One of the two is required for ftp, and for sftp \
     and scp without a private key.",
);
const TLS: Key = flag(
    "tls",
    "Use FTP over implicit TLS. Default: false. Takes precedence over explicit_tls.",
);
const EXPLICIT_TLS: Key = flag("explicit_tls", "Use FTP over explicit TLS. Default: false.");
const NO_CHECK_CERTIFICATE: Key = flag(
    "no_check_certificate",
    "Accept the TLS certificate of the FTP server without verification. Default: false.",
);
const PRIVATE_KEY: Key = secret(
    "private_key",
    "SSH private key for sftp and scp: the key itself in PEM form, in clear text, or the path of \
     its file in the container. Prefer private_key_ref.",
);
const PASSPHRASE: Key = secret(
    "passphrase",
    "Passphrase of the private key in clear text; prefer passphrase_ref.",
);
const ROOT: Key = text(
    "root",
    "URL of the WebDAV server, for example http://HOST:8080. Required for webdav.",
);
const BUCKET: Key = text(
    "bucket",
    "Name of the bucket. Required for gcs and the S3-like stores. For azure it is an older name of \
     account.",
);
const REGION: Key = text(
    "region",
    "Region of the bucket. Default: us-east-1 for s3, r2 and minio; gobackup has a default for \
     each of the other S3-like stores.",
);
const ENDPOINT: Key = text(
    "endpoint",
    "URL of the service, if it is not the provider's own.",
);
const ACCESS_KEY_ID: Key = secret(
    "access_key_id",
    "Access key ID in clear text; prefer access_key_id_ref. One of the two is required for S3-like \
     stores, because gobackup does not use ambient credentials.",
);
const SECRET_ACCESS_KEY: Key = secret(
    "secret_access_key",
    "Secret access key in clear text; prefer secret_access_key_ref. One of the two is required for \
     S3-like stores.",
);
const TOKEN: Key = secret(
    "token",
    "Session token of temporary credentials in clear text; prefer token_ref.",
);
const STORAGE_CLASS: Key = text(
    "storage_class",
    "Storage class of the archives. Empty: the bucket's default. Absent: gobackup's default for the \
     type, for example STANDARD_IA for s3.",
);
const FORCE_PATH_STYLE: Key = flag(
    "force_path_style",
    "Name the bucket in the path of the URL instead of the host name.",
);
const MAX_RETRIES: Key = number(
    "max_retries",
    "Maximum number of retries of a failed request. Default: 3.",
);
const ACCOUNT_ID: Key = text(
    "account_id",
    "Cloudflare account ID. Required for r2 unless endpoint is set.",
);
const CREDENTIALS: Key = secret(
    "credentials",
    "JSON key of a Google Cloud service account in clear text; prefer credentials_ref.",
);
const CREDENTIALS_FILE: Key = text(
    "credentials_file",
    "Path in the container of the JSON key of a Google Cloud service account, instead of \
     credentials.",
);
const ACCOUNT: Key = text(
    "account",
    "Name of the Azure storage account. Required for azure.",
);
const CONTAINER: Key = text(
    "container",
    "Name of the Azure blob container. Default: gobackup.",
);
const TENANT_ID: Key = text(
    "tenant_id",
    "Azure tenant ID of the service principal. Required for azure.",
);
const CLIENT_ID: Key = text(
    "client_id",
    "Client ID of the Azure service principal. Required for azure.",
);
const CLIENT_SECRET: Key = secret(
    "client_secret",
    "Client secret of the Azure service principal in clear text; prefer client_secret_ref. One of \
     the two is required for azure.",
);

const ALL: &[Key] = &[PATH, KEEP];

const SSH: &[Key] = &[
    HOST.required(),
    PORT,
    USERNAME.required(),
    PASSWORD,
    PRIVATE_KEY,
    PASSPHRASE,
    TIMEOUT,
];

const S3_LIKE: &[Key] = &[
    BUCKET.required(),
    REGION,
    ENDPOINT,
    ACCESS_KEY_ID.required(),
    SECRET_ACCESS_KEY.required(),
    TOKEN,
    STORAGE_CLASS,
    FORCE_PATH_STYLE,
    MAX_RETRIES,
    TIMEOUT,
];

const fn storage(name: &'static str, own: &'static [&'static [Key]]) -> Type {
    Type::new(name, ALL, own)
}

const fn object_store(name: &'static str, own: &'static [&'static [Key]]) -> Type {
    let mut type_ = storage(name, own);
    type_.is_s3_like = true;
    type_
}

/// Every type of storage.
pub(crate) const STORAGES: &[Type] = &[
    storage("local", &[&[PATH.required()]]),
    storage(
        "ftp",
        &[&[
            HOST.required(),
            PORT,
            USERNAME.required(),
            PASSWORD.required(),
            TIMEOUT,
            TLS,
            EXPLICIT_TLS,
            NO_CHECK_CERTIFICATE,
        ]],
    ),
    storage("sftp", &[SSH]),
    storage("scp", &[SSH]),
    storage("webdav", &[&[ROOT.required(), USERNAME, PASSWORD]]),
    object_store("s3", &[S3_LIKE]),
    object_store("oss", &[S3_LIKE]),
    storage(
        "gcs",
        &[&[BUCKET.required(), CREDENTIALS, CREDENTIALS_FILE, TIMEOUT]],
    ),
    storage(
        "azure",
        &[&[
            ACCOUNT.required(),
            CONTAINER,
            TENANT_ID.required(),
            CLIENT_ID.required(),
            CLIENT_SECRET.required(),
            TIMEOUT,
        ]],
    ),
    object_store("r2", &[S3_LIKE, &[ACCOUNT_ID]]),
    object_store("spaces", &[S3_LIKE]),
    object_store("b2", &[S3_LIKE]),
    object_store("cos", &[S3_LIKE]),
    object_store("us3", &[S3_LIKE]),
    object_store("kodo", &[S3_LIKE]),
    object_store("bos", &[S3_LIKE]),
    object_store("minio", &[S3_LIKE]),
    object_store("obs", &[S3_LIKE]),
    object_store("tos", &[S3_LIKE]),
    object_store("upyun", &[S3_LIKE]),
];
