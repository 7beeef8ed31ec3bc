//! Tenants' code: rejected by the default configuration, and allowed by `tenants.scripts`.

use expect_test::{Expect, expect};

use super::*;
use crate::scripts::{MYSQL_SETTINGS, PHP_SETTINGS, VARIABLES};

/// Compares the default configuration's verdicts on a field's texts. The switch allows everything that it rejects.
fn check(texts: &[&str], spec: impl Fn(&str) -> Value, expected: &Expect) {
    let off = "and tenants.scripts of the plugin's configuration is off";
    let lines = texts.iter().map(|text| {
        let spec = spec(text);
        pass(&with_scripts(&spec));
        let request = TestRequest::new(&parent("shop", &spec)).build();
        let verdict = match Plugin::reconcile(&request, &host()) {
            Ok(_) => "accepted".to_owned(),
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::Invalid);
                assert!(fault.message.contains(off), "{}", fault.message);
                fault.message.replace(off, "...")
            }
        };
        let shown = text.chars().take(60).collect::<String>();
        format!("{shown:?}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn php_of_the_parent() {
    check(
        &["", "define('A', 1);"],
        |text| json!({ "configExtra": text }),
        &expect![[r#"
            "": accepted
            "define('A', 1);": spec.configExtra: it is PHP code, ...
        "#]],
    );
}

#[test]
fn settings_of_php() {
    let long = format!("; {}", "a".repeat(1024));
    check(
        &[
            "",
            "[PHP]\n; a comment with \"quotes\"\nmemory_limit = 1G ; so much\nexpose_php=Off",
            "date.timezone = \"Europe/Berlin\"\r\nerror_reporting = E_ALL & ~E_NOTICE",
            "auto_prepend_file = /var/www/html/wp-content/uploads/a.jpg",
            "memory_limit = 1G\nextension = /var/www/html/wp-content/uploads/a.so",
            "; a comment\rsendmail_path = /bin/sh",
            "[PATH=/var/www/html]\nmemory_limit = 1G",
            "[PHP] opcache.preload = a.php",
            "memory_limit = \"1G\nauto_append_file=a\"",
            "memory_limit = ${A}",
            "memory_limit = '1G' a \\",
            "Memory_Limit = 1G",
            "# opcache.preload = a.php",
            "disable_functions =",
            &long,
        ],
        |text| json!({ "phpConfig": text }),
        &expect![[r##"
            "": accepted
            "[PHP]\n; a comment with \"quotes\"\nmemory_limit = 1G ; so much\n": accepted
            "date.timezone = \"Europe/Berlin\"\r\nerror_reporting = E_ALL & ~": accepted
            "auto_prepend_file = /var/www/html/wp-content/uploads/a.jpg": spec.phpConfig: line 1: auto_prepend_file is not a setting that is known to run no code, ...
            "memory_limit = 1G\nextension = /var/www/html/wp-content/uploa": spec.phpConfig: line 2: extension is not a setting that is known to run no code, ...
            "; a comment\rsendmail_path = /bin/sh": spec.phpConfig: line 2: sendmail_path is not a setting that is known to run no code, ...
            "[PATH=/var/www/html]\nmemory_limit = 1G": spec.phpConfig: line 1: [PATH is not a setting that is known to run no code, ...
            "[PHP] opcache.preload = a.php": spec.phpConfig: line 1: [PHP] opcache.preload is not a setting that is known to run no code, ...
            "memory_limit = \"1G\nauto_append_file=a\"": spec.phpConfig: line 1: the value of memory_limit has other characters than letters, digits and " ._/+:,-&|~^", ...
            "memory_limit = ${A}": spec.phpConfig: line 1: the value of memory_limit has other characters than letters, digits and " ._/+:,-&|~^", ...
            "memory_limit = '1G' a \\": spec.phpConfig: line 1: the value of memory_limit has other characters than letters, digits and " ._/+:,-&|~^", ...
            "Memory_Limit = 1G": spec.phpConfig: line 1: Memory_Limit is not a setting that is known to run no code, ...
            "# opcache.preload = a.php": spec.phpConfig: line 1: # opcache.preload is not a setting that is known to run no code, ...
            "disable_functions =": spec.phpConfig: line 1: disable_functions is not a setting that is known to run no code, ...
            "; aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": spec.phpConfig: line 1 has more than 1024 bytes, ...
        "##]],
    );
}

#[test]
fn settings_of_mysql() {
    let long = format!("# {}\nmax_connections = 2", "a".repeat(4096));
    check(
        &[
            "",
            "[mysqld]\n# a comment\nmax_connections = 200\nsql-mode = \"ANSI,TRADITIONAL\"",
            "[mysqld]\nskip-name-resolve",
            "[mysqld]\nplugin-load-add = evil.so",
            "[mysqld]\nplugin_dir = /var/lib/mysql/evil",
            "[mysqld]\nloose-max_connections = 200",
            "[mysqld]\ninit_file = /var/lib/mysql/a.sql",
            "[mysqld]\nsecure_file_priv =",
            "!include /var/lib/mysql/a.cnf",
            &long,
        ],
        |text| json!({ "database": { "managed": { "config": text } } }),
        &expect![[r##"
            "": accepted
            "[mysqld]\n# a comment\nmax_connections = 200\nsql-mode = \"ANSI,": accepted
            "[mysqld]\nskip-name-resolve": accepted
            "[mysqld]\nplugin-load-add = evil.so": spec.database.managed.config: line 2: plugin-load-add is not a setting that is known to run no code, ...
            "[mysqld]\nplugin_dir = /var/lib/mysql/evil": spec.database.managed.config: line 2: plugin_dir is not a setting that is known to run no code, ...
            "[mysqld]\nloose-max_connections = 200": spec.database.managed.config: line 2: loose-max_connections is not a setting that is known to run no code, ...
            "[mysqld]\ninit_file = /var/lib/mysql/a.sql": spec.database.managed.config: line 2: init_file is not a setting that is known to run no code, ...
            "[mysqld]\nsecure_file_priv =": spec.database.managed.config: line 2: secure_file_priv is not a setting that is known to run no code, ...
            "!include /var/lib/mysql/a.cnf": spec.database.managed.config: line 1: !include /var/lib/mysql/a.cnf is not a setting that is known to run no code, ...
            "# aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": spec.database.managed.config: line 1 has more than 1024 bytes, ...
        "##]],
    );
}

#[test]
fn variables_that_run_code_or_read_files() {
    check(
        &[
            "WORDPRESS_DEBUG",
            "APP_KEY",
            "LD_PRELOAD",
            "PHP_INI_SCAN_DIR",
            "APACHE_ENVVARS",
            "WORDPRESS_CONFIG_EXTRA_FILE",
            "WORDPRESS_DB_PASSWORD_FILE",
        ],
        |name| json!({ "env": [{ "name": name, "value": "x" }] }),
        &expect![[r#"
            "WORDPRESS_DEBUG": accepted
            "APP_KEY": accepted
            "LD_PRELOAD": spec.env: LD_PRELOAD is not among the variables that run no code and read no file, ...
            "PHP_INI_SCAN_DIR": spec.env: PHP_INI_SCAN_DIR is not among the variables that run no code and read no file, ...
            "APACHE_ENVVARS": spec.env: APACHE_ENVVARS is not among the variables that run no code and read no file, ...
            "WORDPRESS_CONFIG_EXTRA_FILE": spec.env: WORDPRESS_CONFIG_EXTRA_FILE is not among the variables that run no code and read no file, ...
            "WORDPRESS_DB_PASSWORD_FILE": spec.env: WORDPRESS_DB_PASSWORD_FILE is not among the variables that run no code and read no file, ...
        "#]],
    );
    check(
        &["APP_", "WORDPRESS_", ""],
        |prefix| json!({ "envFrom": [{ "prefix": prefix, "configMapRef": { "name": "flags" } }] }),
        &expect![[r#"
            "APP_": accepted
            "WORDPRESS_": spec.envFrom: variables with the prefix "WORDPRESS_" can be others than those that run no code and read no file, ...; set the prefix APP_, or name each variable in env
            "": spec.envFrom: variables with the prefix "" can be others than those that run no code and read no file, ...; set the prefix APP_, or name each variable in env
        "#]],
    );
}

#[test]
fn the_readme_names_the_settings_and_variables_that_run_no_code() {
    let readme = include_str!("../../README.md");
    let names = PHP_SETTINGS.iter().chain(MYSQL_SETTINGS).chain(VARIABLES);
    for name in names {
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
}
