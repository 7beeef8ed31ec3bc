//! A tenant's variables and settings: by program, those that run code, read files or lead elsewhere, and those that
//! users need.

use super::*;

/// The default configuration's verdict.
fn verdict(spec: &Value) -> Result<(), String> {
    let request = TestRequest::new(&parent("shop", spec)).build();
    Plugin::reconcile(&request, &host())
        .map(drop)
        .map_err(|fault| fault.message)
}

/// Variables by the program that reads them.
const DANGEROUS: &[(&str, &[&str])] = &[
    (
        "wordpress",
        &[
            "WORDPRESS_CONFIG_EXTRA",
            "WORDPRESS_CONFIG_EXTRA_FILE",
            "WORDPRESS_DB_HOST_FILE",
            "WORDPRESS_DB_NAME_FILE",
            "WORDPRESS_DB_USER_FILE",
            "WORDPRESS_DB_PASSWORD_FILE",
            "WORDPRESS_DB_CHARSET_FILE",
            "WORDPRESS_DB_COLLATE_FILE",
            "WORDPRESS_TABLE_PREFIX_FILE",
            "WORDPRESS_DEBUG_FILE",
            "WORDPRESS_AUTH_KEY_FILE",
            "WORDPRESS_NONCE_SALT_FILE",
            "WORDPRESS_ANY_FILE",
            "WP_CLI_CONFIG_PATH",
            "WP_CLI_PACKAGES_DIR",
        ],
    ),
    (
        "php",
        &[
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "PHP_INI_DIR",
            "PHP_VALUE",
            "PHP_ADMIN_VALUE",
            "PHP_CFLAGS",
            "USE_ZEND_ALLOC",
            "MAGICK_CONFIGURE_PATH",
            "MAGICK_CODER_MODULE_PATH",
            "MAGICK_FILTER_MODULE_PATH",
            "GS_LIB",
            "GS_OPTIONS",
        ],
    ),
    (
        "apache",
        &[
            "APACHE_ARGUMENTS",
            "APACHE_CONFDIR",
            "APACHE_ENVVARS",
            "APACHE_LOCK_DIR",
            "APACHE_LOG_DIR",
            "APACHE_LYNX",
            "APACHE_PID_FILE",
            "APACHE_RUN_DIR",
            "APACHE_RUN_GROUP",
            "APACHE_RUN_USER",
            "APACHE_ULIMIT_MAX_FILES",
        ],
    ),
    (
        "mysql",
        &[
            "MYSQL_ROOT_PASSWORD_FILE",
            "MYSQL_PASSWORD_FILE",
            "MYSQL_DATABASE",
            "MYSQL_INITDB_SKIP_TZINFO",
            "MYSQL_ONETIME_PASSWORD",
            "MYSQL_HOME",
            "MYSQL_TEST_LOGIN_FILE",
            "LIBMYSQL_PLUGIN_DIR",
            "LIBMYSQL_PLUGINS",
            "MARIADB_PLUGIN_DIR",
            "UMASK",
        ],
    ),
    (
        "openssl, curl and libc",
        &[
            "OPENSSL_CONF",
            "OPENSSL_ENGINES",
            "OPENSSL_MODULES",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "SSLKEYLOGFILE",
            "CURL_HOME",
            "HOSTALIASES",
            "RESOLV_HOST_CONF",
            "GSS_MECH_CONFIG",
            "KRB5_CONFIG",
            "SASL_PATH",
            "LDAPCONF",
            "ODBCSYSINI",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "GCONV_PATH",
            "GLIBC_TUNABLES",
            "LANGUAGE",
            "LOCPATH",
            "MALLOC_TRACE",
            "NLSPATH",
            "TZDIR",
            "TMPDIR",
        ],
    ),
    (
        "bash and its programs",
        &[
            "BASH_ENV",
            "BASH_FUNC_exec%%",
            "ENV",
            "HOME",
            "IFS",
            "PATH",
            "PROMPT_COMMAND",
            "PS4",
            "SHELLOPTS",
            "TAR_OPTIONS",
            "XDG_CONFIG_HOME",
            "ld_preload",
            "",
        ],
    ),
];

#[test]
fn variables_that_run_code_or_read_files_are_invalid() {
    for (program, names) in DANGEROUS {
        for name in *names {
            let spec = json!({ "env": [{ "name": name, "value": "/x" }] });
            let problem = verdict(&spec).expect_err(program);
            let expected = format!(
                "spec.env: {name} is not among the variables that run no code and read no file, and tenants.scripts of the plugin's configuration is off"
            );
            assert_eq!(problem, expected, "{program}");
            pass(&with_scripts(&spec));
        }
        for name in names.iter().filter(|name| !name.is_empty()) {
            let prefix = &name[..name.len() - 1];
            let source = json!({ "prefix": prefix, "configMapRef": { "name": "flags" } });
            let problem = verdict(&json!({ "envFrom": [source] })).expect_err(program);
            let expected =
                format!("spec.envFrom: variables with the prefix \"{prefix}\" can be others");
            assert!(problem.starts_with(&expected), "{program}: {problem}");
        }
    }
}

#[test]
fn variables_with_plain_values_need_no_configuration() {
    for name in [
        "APP_KEY",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LANG",
        "LC_ALL",
        "NO_PROXY",
        "TZ",
        "WORDPRESS_AUTH_KEY",
        "WORDPRESS_DB_CHARSET",
        "WORDPRESS_DB_COLLATE",
        "WORDPRESS_DEBUG",
        "WORDPRESS_TABLE_PREFIX",
        "WP_HOME",
        "WP_SITEURL",
    ] {
        let spec = json!({ "env": [{ "name": name, "value": "x" }] });
        assert_eq!(verdict(&spec), Ok(()), "{name}");
    }
    let source = json!({ "prefix": "APP_", "configMapRef": { "name": "flags", "optional": true } });
    assert_eq!(verdict(&json!({ "envFrom": [source] })), Ok(()));
}

/// PHP settings that load code, or name files and programs.
const PHP: &[&str] = &[
    "allow_url_include",
    "auto_append_file",
    "auto_prepend_file",
    "browscap",
    "curl.cainfo",
    "disable_functions",
    "doc_root",
    "error_log",
    "extension",
    "extension_dir",
    "ffi.preload",
    "include_path",
    "mail.log",
    "opcache.file_cache",
    "opcache.preload",
    "open_basedir",
    "openssl.cafile",
    "sendmail_path",
    "session.save_handler",
    "session.save_path",
    "sys_temp_dir",
    "unserialize_callback_func",
    "upload_tmp_dir",
    "user_ini.filename",
    "zend_extension",
];

/// mysqld settings that load code, or name files.
const MYSQL: &[&str] = &[
    "basedir",
    "bind-address",
    "datadir",
    "early-plugin-load",
    "general_log_file",
    "init-file",
    "init_connect",
    "local_infile",
    "log-error",
    "lc_messages_dir",
    "loose-plugin-load-add",
    "plugin-dir",
    "plugin-load",
    "secure_file_priv",
    "skip-grant-tables",
    "slow_query_log_file",
    "socket",
    "ssl_key",
    "tmpdir",
    "user",
];

#[test]
fn settings_that_run_code_or_name_files_are_invalid() {
    let config = |text: String| json!({ "database": { "managed": { "config": text } } });
    let php = PHP.iter().map(|name| {
        let spec = json!({ "phpConfig": format!("{name} = x") });
        ("spec.phpConfig: line 1", name, spec)
    });
    let mysql = MYSQL.iter().map(|name| {
        let spec = config(format!("[mysqld]\n{name} = x"));
        ("spec.database.managed.config: line 2", name, spec)
    });
    for (place, name, spec) in php.chain(mysql) {
        let expected = format!(
            "{place}: {name} is not a setting that is known to run no code, and tenants.scripts of the plugin's configuration is off"
        );
        assert_eq!(verdict(&spec), Err(expected));
    }
}
