//! Fields of a parent that decide which code a container runs, besides its image and its scripts.
//!
//! A list of allowed images and a switch for scripts mean little if a variable makes the programs of an
//! allowed image load other code, or if a volume of the tenant takes the place of these programs. The
//! checks here refuse both. They know the variables of common loaders, shells, interpreters and tools,
//! and the directories of programs in common images; an image with further ones needs checks of its own.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};

/// Variables that name code, or options with which a program runs code. An entry that ends with `*`
/// stands for all that start with it.
///
/// The loaders of glibc and musl, shells, interpreters, TLS and database libraries with plugins,
/// libraries of clouds that ask a program for credentials, and programs for archives, transfers and
/// version control.
const CODE_VARIABLES: &[&str] = &[
    "APACHE_*",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "BASHOPTS",
    "BASH_*",
    "CDPATH",
    "CLASSPATH",
    "CORECLR_*",
    "DOTNET_*",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GIT_*",
    "GLIBC_TUNABLES",
    "GOOGLE_EXTERNAL_ACCOUNT_*",
    "GZIP",
    "HOME",
    "IFS",
    "JAVA_*",
    "JDK_*",
    "LD_*",
    "LESS*",
    "LIBMYSQL_*",
    "LOCPATH",
    "LUA_*",
    "MAGIC",
    "MARIADB_*",
    "MYSQL_HOME",
    "MYSQL_TEST_LOGIN_FILE",
    "NLSPATH",
    "NODE_*",
    "ODBC*",
    "OPENSSL_*",
    "PAGER",
    "PATH",
    "PERL*",
    "PGSERVICE*",
    "PGSSLKEY",
    "PGSYSCONFDIR",
    "PHPRC",
    "PHP_*",
    "PROMPT_COMMAND",
    "PS4",
    "PSQL*",
    "PYTHON*",
    "RSYNC_*",
    "RUBY*",
    "R_*",
    "SHELL",
    "SHELLOPTS",
    "SSH_ASKPASS*",
    "TAR_OPTIONS",
    "TCL*",
    "TERMINFO*",
    "VISUAL",
    "WORDPRESS_CONFIG_EXTRA",
    "XDG_*",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Directories of programs, libraries and their settings in images, and those of the kernel and the
/// container runtime.
const CODE_DIRECTORIES: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libexec", "/libx32", "/opt",
    "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run",
];

/// Checks that no variable changes which code a container runs.
///
/// The names of `envFrom` are the keys of an object that can change after the check, so its prefix must
/// rule out each such name.
///
/// # Errors
///
/// The path of the field, and the variable or the prefix.
///
/// ```
/// use innkeeper_sdk::{pod::variable, tenants::check_environment};
///
/// assert!(check_environment("spec", &[variable("LOG_LEVEL", "debug")], &[]).is_ok());
/// assert!(check_environment("spec", &[variable("LD_PRELOAD", "/data/x.so")], &[]).is_err());
/// ```
pub fn check_environment(
    path: &str,
    env: &[EnvVar],
    env_from: &[EnvFromSource],
) -> Result<(), String> {
    let mut names = env.iter().map(|it| it.name.as_str());
    if let Some(name) = names.find(|name| is_code_variable(name)) {
        return Err(format!(
            "{path}.env: {name} can change the programs that run, and tenants.scripts of the plugin's \
             configuration is off"
        ));
    }
    let mut prefixes = env_from
        .iter()
        .map(|it| it.prefix.as_deref().unwrap_or_default());
    match prefixes.find(|prefix| begins_code_variable(prefix)) {
        None => Ok(()),
        Some(prefix) => Err(format!(
            "{path}.envFrom: variables with the prefix \"{prefix}\" can change the programs that run, and \
             tenants.scripts of the plugin's configuration is off; set another prefix, such as APP_"
        )),
    }
}

fn is_code_variable(name: &str) -> bool {
    CODE_VARIABLES
        .iter()
        .any(|entry| match entry.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *entry,
        })
}

/// True if a variable whose name begins with this prefix can be one that names code.
fn begins_code_variable(prefix: &str) -> bool {
    is_code_variable(prefix) || CODE_VARIABLES.iter().any(|entry| entry.starts_with(prefix))
}

/// Checks that a mount covers neither programs of the image nor these directories of the plugin, and
/// lies in none of them.
///
/// # Errors
///
/// The path of the field, the mount and the directory.
///
/// ```
/// use innkeeper_sdk::tenants::check_mount;
///
/// assert!(check_mount("spec.volumes", "/data", &["/work"]).is_ok());
/// assert!(check_mount("spec.volumes", "/usr/local/bin", &["/work"]).is_err());
/// assert!(check_mount("spec.volumes", "/work/tmp", &["/work"]).is_err());
/// ```
pub fn check_mount(path: &str, mount: &str, own: &[&str]) -> Result<(), String> {
    let given = mount.strip_suffix('/').unwrap_or(mount);
    let mut parts = given.split('/').skip(1);
    if !mount.starts_with('/') || parts.any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!(
            "{path}: write {mount} as an absolute path without empty parts, \".\" and \"..\""
        ));
    }
    let mut directories = CODE_DIRECTORIES.iter().chain(own);
    match directories.find(|directory| holds(given, directory) || holds(directory, given)) {
        None => Ok(()),
        Some(directory) => Err(format!(
            "{path}: a mount at {mount} can replace programs or settings in {directory}, and \
             tenants.scripts of the plugin's configuration is off"
        )),
    }
}

/// True if a path is a directory or lies in it; the empty text is the root.
fn holds(directory: &str, path: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvFromSource;

    use super::{check_environment, check_mount};
    use crate::pod::variable;

    #[test]
    fn refuses_variables_that_change_the_code() {
        let check = |name: &str| check_environment("spec", &[variable(name, "x")], &[]);
        for name in [
            "PATH",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "BASH_FUNC_mkdir%%",
            "ENV",
            "PYTHONPATH",
            "PERL5OPT",
            "TAR_OPTIONS",
            "OPENSSL_CONF",
            "LIBMYSQL_PLUGIN_DIR",
            "MARIADB_PLUGIN_DIR",
            "MARIADB_HOME",
            "MYSQL_TEST_LOGIN_FILE",
            "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
            "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "PGSSLKEY",
            "PGSERVICE",
            "PGSERVICEFILE",
            "APACHE_ENVVARS",
            "WORDPRESS_CONFIG_EXTRA",
        ] {
            assert_eq!(
                check(name).unwrap_err(),
                format!(
                    "spec.env: {name} can change the programs that run, and tenants.scripts of the plugin's \
                     configuration is off"
                ),
            );
        }
        for name in [
            "AWS_REGION",
            "LOG_LEVEL",
            "MYSQL_PWD",
            "MY_PATH",
            "PATHS",
            "PGPASSWORD",
            "PGSSLMODE",
            "TZ",
            "WORDPRESS_DEBUG",
            "path",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn refuses_prefixes_that_leave_such_variables_open() {
        let check = |prefix: Option<&str>| {
            let source = EnvFromSource {
                prefix: prefix.map(str::to_owned),
                ..EnvFromSource::default()
            };
            check_environment("spec", &[], &[source])
        };
        for prefix in [
            None,
            Some(""),
            Some("P"),
            Some("LD_"),
            Some("LD_PRE"),
            Some("PYTHON"),
            Some("PG"),
            Some("MYSQL_"),
            Some("WORDPRESS_"),
        ] {
            let text = prefix.unwrap_or_default();
            assert_eq!(
                check(prefix).unwrap_err(),
                format!(
                    "spec.envFrom: variables with the prefix \"{text}\" can change the programs that run, \
                     and tenants.scripts of the plugin's configuration is off; set another prefix, such as \
                     APP_"
                ),
            );
        }
        for prefix in ["APP_", "PATH_", "DB"] {
            assert_eq!(check(Some(prefix)), Ok(()), "{prefix}");
        }
    }

    #[test]
    fn refuses_mounts_over_programs() {
        let check = |mount: &str| check_mount("spec.volumes", mount, &["/work", "/var/lib/tool"]);
        for (mount, directory) in [
            ("/", "/bin"),
            ("/bin", "/bin"),
            ("/bin/", "/bin"),
            ("/usr/local/bin", "/usr"),
            ("/etc/tool", "/etc"),
            ("/var", "/var/run"),
            ("/var/lib", "/var/lib/tool"),
            ("/var/lib/tool/state", "/var/lib/tool"),
            ("/work", "/work"),
        ] {
            assert_eq!(
                check(mount).unwrap_err(),
                format!(
                    "spec.volumes: a mount at {mount} can replace programs or settings in {directory}, and \
                     tenants.scripts of the plugin's configuration is off"
                ),
            );
        }
        for mount in ["/data/../usr", "//usr", "/./usr", "/data//x", "data", ""] {
            let problem = check(mount).unwrap_err();
            assert!(
                problem.contains("without empty parts"),
                "{mount}: {problem}"
            );
        }
        for mount in [
            "/data",
            "/data/",
            "/binary",
            "/var/lib/other",
            "/home/x",
            "/work2",
        ] {
            assert_eq!(check(mount), Ok(()), "{mount}");
        }
    }
}
