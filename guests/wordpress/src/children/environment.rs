//! The site container's environment.
//!
//! The official images read these names. The names with `WP_` and `STACK_` are for Bitpoke's runtime images, which
//! take the database from variables that the user sets.

use innkeeper_kit::pod::{secret_variable, variable};
use innkeeper_sdk::json;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, SecretEnvSource};

use crate::{api::Scheme, site::Site};

/// The WordPress constant that enables background core updates.
const CORE_UPDATES: &str = "WP_AUTO_UPDATE_CORE";

/// PHP that takes the site's address from the request. Commands have no request and use the stored one.
const OWN_ADDRESS: &str = "\
if (preg_match('/^[A-Za-z0-9.:\\[\\]_-]+$/D', $_SERVER['HTTP_HOST'] ?? '')) {
    $innkeeper_url = (in_array($_SERVER['HTTPS'] ?? 'off', ['', 'off']) ? 'http' : 'https')
        . '://' . $_SERVER['HTTP_HOST'];
{constants}
}";

/// The prefix under which the official images read keys and salts.
const SALT_PREFIX: &str = "WORDPRESS_";

/// The variables, ordered so that later ones can reference earlier ones.
pub(super) fn variables(site: &Site<'_>) -> Vec<EnvVar> {
    let spec = site.spec;
    let credentials = &site.credentials;
    let (host, schema) = match (&site.managed, spec.external()) {
        (Some(managed), _) => (site.mysql_name(), managed.database_name.as_str()),
        (None, Some(external)) => (external.address(), external.database_name.as_str()),
        (None, None) => (site.mysql_name(), "wordpress"),
    };
    let mut variables = vec![
        variable("WORDPRESS_DB_HOST", host),
        variable("WORDPRESS_DB_NAME", schema),
        secret_variable(
            "WORDPRESS_DB_USER",
            &credentials.secret,
            &credentials.username_key,
        ),
        secret_variable(
            "WORDPRESS_DB_PASSWORD",
            &credentials.secret,
            &credentials.password_key,
        ),
    ];
    let database = spec.database.as_ref();
    if let Some(prefix) = database.and_then(|database| database.table_prefix.as_ref()) {
        variables.push(variable("WORDPRESS_TABLE_PREFIX", prefix));
    }
    if !spec.routes.is_empty() {
        variables.push(variable("WP_HOME", site.home_url()));
        variables.push(variable("WP_SITEURL", site.home_url()));
    }
    variables.push(variable("STACK_ROUTES", stack_routes(site)));
    variables.push(variable("STACK_SITE_NAME", site.name));
    variables.push(variable("STACK_SITE_NAMESPACE", site.namespace));
    // The kubelet would expand `$(` as a variable reference.
    let extra = config_extra(site).replace("$(", "$$(");
    variables.push(variable("WORDPRESS_CONFIG_EXTRA", extra));
    for entry in &spec.env {
        let entry = json::sanitized(entry);
        match variables
            .iter_mut()
            .find(|variable| variable.name == entry.name)
        {
            // In place, because later variables may reference it.
            Some(replaced) => *replaced = entry,
            None => variables.push(entry),
        }
    }
    variables
}

/// The salts, under both names that images read, and the user's sources.
pub(super) fn sources(site: &Site<'_>) -> Vec<EnvFromSource> {
    let salts = |prefix: Option<&str>| EnvFromSource {
        prefix: prefix.map(ToOwned::to_owned),
        secret_ref: Some(SecretEnvSource {
            name: site.salts_name(),
            ..Default::default()
        }),
        ..Default::default()
    };
    // The kubelet lets the last source win, so the user's can replace a salt.
    let sources = site.spec.env_from.iter().map(json::sanitized);
    [salts(Some(SALT_PREFIX)), salts(None)]
        .into_iter()
        .chain(sources)
        .collect()
}

/// Domain and path of every route, in order.
fn stack_routes(site: &Site<'_>) -> String {
    if site.spec.routes.is_empty() {
        return site.main_domain();
    }
    let routes: Vec<String> = site
        .spec
        .routes
        .iter()
        .map(|route| format!("{}{}", route.domain, route.trimmed_path()))
        .collect();
    routes.join(",")
}

/// PHP for the WordPress configuration. Without routes, the URL comes from the request: the site then answers on
/// every address that leads to it, whichever one it was installed at.
///
/// Only a new image updates the core, unless the user's PHP decides otherwise: an update inside a Pod is lost with
/// the Pod, while the database keeps the newer schema.
fn config_extra(site: &Site<'_>) -> String {
    let extra = site
        .spec
        .config_extra
        .clone()
        .filter(|text| !text.is_empty());
    // PHP warns about a constant that is defined twice.
    let is_free = |name: &str| !extra.as_ref().is_some_and(|text| text.contains(name));
    // WordPress only looks at this variable, and not every proxy sends the scheme.
    let https = (site.scheme() == Scheme::Https).then(|| "$_SERVER['HTTPS'] = 'on';".to_owned());
    let urls = ["WP_HOME", "WP_SITEURL"]
        .into_iter()
        .filter(|name| is_free(name));
    let addresses: Vec<String> = if site.spec.routes.is_empty() {
        let lines: Vec<String> = urls
            .map(|name| format!("    define('{name}', $innkeeper_url);"))
            .collect();
        match &lines[..] {
            [] => lines,
            _ => vec![OWN_ADDRESS.replace("{constants}", &lines.join("\n"))],
        }
    } else {
        let url = site.home_url();
        urls.map(|name| format!("define('{name}', '{url}');"))
            .collect()
    };
    let updates = is_free(CORE_UPDATES).then(|| format!("define('{CORE_UPDATES}', false);"));
    let lines: Vec<String> = https
        .into_iter()
        .chain(addresses)
        .chain(updates)
        .chain(extra)
        .collect();
    lines.join("\n")
}
