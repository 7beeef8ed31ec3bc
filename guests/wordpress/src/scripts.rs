//! The fields with which a tenant can run code in a site's Pods, besides the images.
//!
//! Allow lists: PHP settings, MySQL settings and variables load files, libraries and statements in too many ways to
//! deny them one by one.

use innkeeper_kit::tenants::check_environment;

use crate::site::Site;

/// Longest settings line in bytes. MySQL reads at most 4,095 bytes at a time and takes the rest of a longer line,
/// even of a comment, for a new line.
const LINE_MAX: usize = 1024;

/// PHP settings that run no code. PHP distinguishes upper and lower case.
pub(crate) const PHP_SETTINGS: &[&str] = &[
    "date.timezone",
    "default_socket_timeout",
    "display_errors",
    "error_reporting",
    "expose_php",
    "file_uploads",
    "log_errors",
    "max_execution_time",
    "max_file_uploads",
    "max_input_time",
    "max_input_vars",
    "memory_limit",
    "opcache.enable",
    "opcache.interned_strings_buffer",
    "opcache.max_accelerated_files",
    "opcache.memory_consumption",
    "opcache.revalidate_freq",
    "opcache.validate_timestamps",
    "output_buffering",
    "post_max_size",
    "realpath_cache_size",
    "realpath_cache_ttl",
    "session.cookie_lifetime",
    "session.gc_maxlifetime",
    "upload_max_filesize",
];

/// MySQL settings that run no code, with underscores for hyphens.
pub(crate) const MYSQL_SETTINGS: &[&str] = &[
    "binlog_expire_logs_seconds",
    "character_set_server",
    "collation_server",
    "connect_timeout",
    "default_time_zone",
    "innodb_buffer_pool_instances",
    "innodb_buffer_pool_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_io_capacity",
    "innodb_lock_wait_timeout",
    "innodb_redo_log_capacity",
    "interactive_timeout",
    "join_buffer_size",
    "long_query_time",
    "max_allowed_packet",
    "max_connections",
    "max_heap_table_size",
    "net_read_timeout",
    "net_write_timeout",
    "performance_schema",
    "skip_name_resolve",
    "slow_query_log",
    "sort_buffer_size",
    "sql_mode",
    "sync_binlog",
    "table_open_cache",
    "thread_cache_size",
    "tmp_table_size",
    "transaction_isolation",
    "wait_timeout",
];

/// Variables that WordPress uses as plain values, in the official images and in Bitpoke's. The official images read a
/// file for each name that ends in `_FILE`, and run the one for `WORDPRESS_CONFIG_EXTRA_FILE`.
pub(crate) const VARIABLES: &[&str] = &[
    "DB_HOST",
    "DB_NAME",
    "DB_PASSWORD",
    "DB_USER",
    "WORDPRESS_AUTH_KEY",
    "WORDPRESS_AUTH_SALT",
    "WORDPRESS_DB_CHARSET",
    "WORDPRESS_DB_COLLATE",
    "WORDPRESS_DB_HOST",
    "WORDPRESS_DB_NAME",
    "WORDPRESS_DB_PASSWORD",
    "WORDPRESS_DB_USER",
    "WORDPRESS_DEBUG",
    "WORDPRESS_LOGGED_IN_KEY",
    "WORDPRESS_LOGGED_IN_SALT",
    "WORDPRESS_NONCE_KEY",
    "WORDPRESS_NONCE_SALT",
    "WORDPRESS_SECURE_AUTH_KEY",
    "WORDPRESS_SECURE_AUTH_SALT",
    "WORDPRESS_TABLE_PREFIX",
    "WP_HOME",
    "WP_SITEURL",
];

/// Checks that no field runs the tenant's code, unless the configuration allows it.
pub(crate) fn check(site: &Site<'_>) -> Result<(), String> {
    if site.config.tenants.scripts {
        return Ok(());
    }
    let spec = site.spec;
    if spec
        .config_extra
        .as_ref()
        .is_some_and(|config_extra| !config_extra.is_empty())
    {
        return Err(
            "spec.configExtra: it is PHP code, and tenants.scripts of the plugin's configuration is off"
                .to_owned(),
        );
    }
    check_environment("spec", &spec.env, &spec.env_from, VARIABLES)?;
    if let Some(text) = &spec.php_config {
        check_settings("spec.phpConfig", text, &[';'], |name| {
            PHP_SETTINGS.contains(&name)
        })?;
    }
    let managed = site.managed.as_ref();
    if let Some(text) = managed.and_then(|managed| managed.config.as_ref()) {
        check_settings("spec.database.managed.config", text, &[';', '#'], |name| {
            MYSQL_SETTINGS.contains(&&*name.replace('-', "_"))
        })?;
    }
    Ok(())
}

/// Checks that each line is empty, a comment, a section header, or a known setting with a plain value.
///
/// Only values without inner quotes and escapes are plain: the programs would read others past the line's end or
/// expand variables in them.
fn check_settings(
    path: &str,
    text: &str,
    comments: &[char],
    is_known: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let off = "and tenants.scripts of the plugin's configuration is off";
    // PHP ends a line at either character.
    for (index, line) in text.split(['\n', '\r']).enumerate() {
        let number = index + 1;
        if line.len() > LINE_MAX {
            return Err(format!(
                "{path}: line {number} has more than {LINE_MAX} bytes, {off}"
            ));
        }
        let statement = line.split(comments).next().unwrap_or_default().trim();
        let (name, value) = match statement.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => (statement, ""),
        };
        if statement.is_empty() || is_section(statement) {
            continue;
        }
        if !is_known(name) {
            return Err(format!(
                "{path}: line {number}: {name} is not a setting that is known to run no code, {off}"
            ));
        }
        if !is_plain(value) {
            return Err(format!(
                "{path}: line {number}: the value of {name} has other characters than letters, digits and \
                 \" ._/+:,-&|~^\", {off}"
            ));
        }
    }
    Ok(())
}

/// True for a section header, such as `[mysqld]`.
fn is_section(statement: &str) -> bool {
    let name = statement
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    name.is_some_and(|name| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    })
}

fn is_plain(value: &str) -> bool {
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    let inner = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    inner
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || " ._/+:,-&|~^".contains(c))
}
