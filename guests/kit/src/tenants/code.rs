//! Parent fields that decide which code a container runs, besides image and scripts.
//!
//! Limits on images and scripts are useless if a variable makes an allowed image load other code, or if a tenant's volume
//! replaces the image's programs. These checks refuse both. They allow only variables that are known to hold plain
//! values, and know the program directories of common images; images with other directories need further checks.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};

/// Variables that no program uses as code, options or file names, whatever the image. An entry that ends with `*` matches
/// names that continue with letters, digits and underscores.
///
/// Locales are harmless, because libc refuses slashes in their names; `LANGUAGE` is not, because gettext accepts
/// them. No program in a common image reads `APP_*`: they are for tenant code that an image runs anyway.
const PLAIN_VARIABLES: &[&str] = &[
    "APP_*",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "NO_PROXY",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Directories with programs, libraries and their settings in images, and the kernel's and container runtime's
/// directories.
const CODE_DIRECTORIES: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libexec", "/libx32", "/opt",
    "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var/run",
];

/// Checks that each variable is one of those that run no code and read no file: locale, time zone and proxies, names
/// that begin with `APP_`, and those of `plain`.
///
/// `plain` has the further variables of the plugin's images that hold plain values; an entry that ends with `*` stands
/// for all names that continue with letters, digits and underscores. A list of dangerous variables would never be
/// complete: each library of an image may have one that names a file to load.
///
/// The names of `envFrom` are the keys of an object that can change after the check, so the prefix must
/// rule out each other name.
///
/// # Errors
///
/// Returns the field's path, and the variable or the prefix.
///
/// ```
/// use innkeeper_kit::{pod::variable, tenants::check_environment};
///
/// let plain = ["LOG_LEVEL"];
/// assert!(check_environment("spec", &[variable("LOG_LEVEL", "debug")], &[], &plain).is_ok());
/// assert!(check_environment("spec", &[variable("TZ", "Europe/Berlin")], &[], &plain).is_ok());
/// assert!(check_environment("spec", &[variable("LD_PRELOAD", "/data/x.so")], &[], &plain).is_err());
/// ```
pub fn check_environment(
    path: &str,
    env: &[EnvVar],
    env_from: &[EnvFromSource],
    plain: &[&str],
) -> Result<(), String> {
    let mut names = env.iter().map(|variable| variable.name.as_str());
    if let Some(name) = names.find(|name| !is_plain(name, plain)) {
        return Err(format!(
            "{path}.env: {name} is not among the variables that run no code and read no file, and tenants.scripts \
             of the plugin's configuration is off"
        ));
    }
    let mut prefixes = env_from
        .iter()
        .map(|source| source.prefix.as_deref().unwrap_or_default());
    match prefixes.find(|prefix| !begins_plain(prefix, plain)) {
        None => Ok(()),
        Some(prefix) => Err(format!(
            "{path}.envFrom: variables with the prefix \"{prefix}\" can be others than those that run no code and \
             read no file, and tenants.scripts of the plugin's configuration is off; set the prefix APP_, or name \
             each variable in env"
        )),
    }
}

fn is_plain(name: &str, plain: &[&str]) -> bool {
    let mut entries = PLAIN_VARIABLES.iter().chain(plain);
    begins_plain(name, plain) || !name.ends_with('*') && entries.any(|entry| *entry == name)
}

/// Returns whether all variables with this prefix are plain.
fn begins_plain(text: &str, plain: &[&str]) -> bool {
    let is_name_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    PLAIN_VARIABLES
        .iter()
        .chain(plain)
        .filter_map(|entry| entry.strip_suffix('*'))
        .any(|start| {
            text.strip_prefix(start)
                .is_some_and(|rest| rest.bytes().all(is_name_part))
        })
}

/// Checks that a mount neither covers nor is inside the image's program directories or these plugin directories.
///
/// # Errors
///
/// Returns the field's path, the mount and the directory.
///
/// ```
/// use innkeeper_kit::tenants::check_mount;
///
/// assert!(check_mount("spec.volumes", "/data", &["/work"]).is_ok());
/// assert!(check_mount("spec.volumes", "/usr/local/bin", &["/work"]).is_err());
/// assert!(check_mount("spec.volumes", "/work/tmp", &["/work"]).is_err());
/// ```
pub fn check_mount(path: &str, mount: &str, own: &[&str]) -> Result<(), String> {
    let target = mount.strip_suffix('/').unwrap_or(mount);
    let mut parts = target.split('/').skip(1);
    if !mount.starts_with('/') || parts.any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!(
            "{path}: write {mount} as an absolute path without empty parts, \".\" and \"..\""
        ));
    }
    let mut directories = CODE_DIRECTORIES.iter().chain(own);
    match directories.find(|directory| holds(target, directory) || holds(directory, target)) {
        None => Ok(()),
        Some(directory) => Err(format!(
            "{path}: a mount at {mount} can replace programs or settings in {directory}, and \
             tenants.scripts of the plugin's configuration is off"
        )),
    }
}

/// Returns whether a path is the directory or inside it; the empty text is the root.
fn holds(directory: &str, path: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EnvFromSource;

    use super::{check_environment, check_mount};
    use crate::pod::variable;

    const PLAIN: &[&str] = &["PGPASSWORD", "PGSSLMODE", "TOOL_*"];

    #[test]
    fn allows_plain_variables_alone() {
        let check = |name: &str| check_environment("spec", &[variable(name, "x")], &[], PLAIN);
        for name in [
            "APACHE_ENVVARS",
            "APP",
            "APP_}$(id)",
            "AWS_CONFIG_FILE",
            "BASH_ENV",
            "BASH_FUNC_mkdir%%",
            "GSS_MECH_CONFIG",
            "KRB5_CONFIG",
            "LANGUAGE",
            "LC_MESSAGES_FILE",
            "LD_PRELOAD",
            "MAGICK_CONFIGURE_PATH",
            "MYSQL_PWD",
            "OPENSSL_CONF",
            "PATH",
            "PGPASSWORD_FILE",
            "PGSERVICEFILE",
            "SASL_PATH",
            "TOOL_*",
            "TZDIR",
            "WORDPRESS_CONFIG_EXTRA_FILE",
            "app_x",
            "pgpassword",
            "",
        ] {
            assert_eq!(
                check(name).unwrap_err(),
                format!(
                    "spec.env: {name} is not among the variables that run no code and read no file, and \
                     tenants.scripts of the plugin's configuration is off"
                ),
            );
        }
        for name in [
            "APP_",
            "APP_KEY",
            "HTTPS_PROXY",
            "LANG",
            "LC_ALL",
            "PGPASSWORD",
            "PGSSLMODE",
            "TOOL_LEVEL",
            "TZ",
            "no_proxy",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn refuses_prefixes_that_leave_other_variables_open() {
        let check = |prefix: Option<&str>| {
            let source = EnvFromSource {
                prefix: prefix.map(str::to_owned),
                ..EnvFromSource::default()
            };
            check_environment("spec", &[], &[source], PLAIN)
        };
        for prefix in [
            None,
            Some(""),
            Some("APP"),
            Some("A"),
            Some("LC_"),
            Some("LD_PRE"),
            Some("PG"),
            Some("PGPASSWORD"),
            Some("TZ"),
            Some("WORDPRESS_"),
        ] {
            let text = prefix.unwrap_or_default();
            assert_eq!(
                check(prefix).unwrap_err(),
                format!(
                    "spec.envFrom: variables with the prefix \"{text}\" can be others than those that run no code \
                     and read no file, and tenants.scripts of the plugin's configuration is off; set the prefix \
                     APP_, or name each variable in env"
                ),
            );
        }
        for prefix in ["APP_", "APP_DB", "TOOL_"] {
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
