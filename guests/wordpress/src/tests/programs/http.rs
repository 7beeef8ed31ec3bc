//! The site over HTTP: Apache, PHP and WordPress serve the rendered Pod, with variables, port, probe and
//! the init container's copy, beside a MariaDB.
//!
//! The programs come from Debian, and the WordPress configuration reads the variables of the
//! official images.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child as Process, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Container, is_full, kill};
use crate::tests::{pass, pod, with_scripts, workloads};

/// Replaces the entrypoint: starts a database beside the site, at the address that the site uses.
const ENTRYPOINT: &str = r#"#!/bin/sh
set -eu
data=/mnt/root/database
if ! [ -d "$data" ]; then
  mariadb-install-db --datadir="$data" --auth-root-authentication-method=normal --skip-test-db >/dev/null
fi
mariadbd --datadir="$data" --socket=/mnt/root/database.socket --bind-address=127.0.0.1 &
until mariadb -u root --socket=/mnt/root/database.socket -e "CREATE DATABASE IF NOT EXISTS \`$WORDPRESS_DB_NAME\`;
  GRANT ALL ON \`$WORDPRESS_DB_NAME\`.* TO '$WORDPRESS_DB_USER'@'%' IDENTIFIED BY '$WORDPRESS_DB_PASSWORD'" 2>/dev/null
do sleep 0.1; done
exec apache2 -DFOREGROUND -f /mnt/root/apache.conf
"#;

/// A WordPress configuration that reads the official images' variables and trusts a proxy as they do.
const CONFIGURATION: &str = r#"<?php
foreach (['NAME', 'USER', 'PASSWORD', 'HOST'] as $name) {
    define("DB_$name", getenv("WORDPRESS_DB_$name"));
}
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define("{$name}_KEY", getenv("WORDPRESS_{$name}_KEY"));
    define("{$name}_SALT", getenv("WORDPRESS_{$name}_SALT"));
}
$table_prefix = getenv('WORDPRESS_TABLE_PREFIX') ?: 'wp_';
define('WP_DEBUG', (bool) getenv('WORDPRESS_DEBUG'));
define('WP_DEFAULT_THEME', 'plain');
if (($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? '') === 'https') {
    $_SERVER['HTTPS'] = 'on';
}
eval(getenv('WORDPRESS_CONFIG_EXTRA'));
require_once __DIR__ . '/wp-settings.php';
"#;

/// A page that creates the recovery mode link, which WordPress mails to the administrator.
const RECOVERY: &str = r"<?php
define('WP_INSTALLING', true);
require __DIR__ . '/wp-load.php';
echo (new WP_Recovery_Mode_Link_Service(new WP_Recovery_Mode_Cookie_Service(), new WP_Recovery_Mode_Key_Service()))
    ->generate_url();
";

/// The installer's form.
const FORM: &str = "weblog_title=Shop&user_name=admin&admin_password=secret-4711&admin_password2=secret-4711\
                    &admin_email=admin%40example.com&blog_public=0";

const LOGIN: &str = "log=admin&pwd=secret-4711&testcookie=1";

/// A response.
#[derive(Debug)]
struct Answer {
    status: u16,
    location: String,
    body: String,
}

/// A site Pod with a database beside it.
struct Web {
    container: Container,
    variables: Vec<(String, String)>,
    process: Option<Process>,
}

impl Web {
    /// A started Pod for a spec, with WordPress not installed; `None` where tests cannot create namespaces.
    fn new(spec: &Value) -> Option<Self> {
        let pod = rendered(spec);
        let container = Container::for_pod(&pod, "containers", 33)?;
        let mut web = Self {
            container,
            variables: Vec::new(),
            process: None,
        };
        web.container.program("docker-entrypoint.sh", ENTRYPOINT);
        chown(&web.container.root, None, Some(33)).unwrap();
        fs::set_permissions(&web.container.root, fs::Permissions::from_mode(0o775)).unwrap();
        web.copy_core(&pod);
        fs::write(web.html("wp-config.php"), CONFIGURATION).unwrap();
        fs::write(web.html("recovery.php"), RECOVERY).unwrap();
        web.start(spec);
        Some(web)
    }

    /// Runs the init container.
    fn copy_core(&mut self, pod: &Value) {
        let own = self.container.spec.clone();
        self.container.spec = pod["spec"]["initContainers"][0].clone();
        let files = wordpress();
        let image = [(&*files, "/usr/src/wordpress")];
        let copied = self.container.start(&[], &image).wait().unwrap();
        assert!(copied.success(), "{}", self.log());
        self.container.spec = own;
    }

    /// Restarts the Pod with a spec's template; database and files stay.
    fn start(&mut self, spec: &Value) {
        self.stop();
        self.container.spec = rendered(spec)["spec"]["containers"][0].clone();
        self.variables = variables(&self.container.spec);
        let port = &self.container.spec["ports"][0]["containerPort"];
        fs::write(self.container.root.join("apache.conf"), apache(port)).unwrap();
        let variables: Vec<(&str, &str)> = self
            .variables
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        self.process = Some(self.container.start(&variables, &[]));
        self.wait(|web| web.get("http://shop/readme.html", &[]).status == 200);
    }

    fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            kill(process);
        }
    }

    fn wait(&self, is_done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        while !is_done(self) {
            assert!(Instant::now() < end, "{}", self.log());
            sleep(Duration::from_millis(100));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.container.root.join("errors")).unwrap()
            + &fs::read_to_string(self.container.root.join("apache.log")).unwrap_or_default()
    }

    fn html(&self, name: &str) -> PathBuf {
        self.container.root.join("html-").join(name)
    }

    fn content(&self, name: &str) -> PathBuf {
        self.container.root.join("code-wp-content").join(name)
    }

    /// Writes a site file and the directories above it.
    fn write(&self, name: &str, text: &str) {
        let path = self.content(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs a program in the Pod and returns the output.
    fn run<'a>(&self, command: impl IntoIterator<Item = &'a str>) -> String {
        let process = self.process.as_ref().unwrap();
        let Some(mut command) = self.container.command(process, command, &[]) else {
            return String::new();
        };
        let output = command.stdout(Stdio::piped()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A request to the Pod; the URL has the address that the sender believes to call.
    fn get(&self, url: &str, options: &[&str]) -> Answer {
        let port = &self.container.spec["ports"][0]["containerPort"];
        let (_, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let host = format!("Host: {host}");
        let target = format!("http://127.0.0.1:{port}/{path}");
        let jar = self.container.root.join("cookies");
        let jar = jar.to_str().unwrap();
        let mut command = vec!["curl", "--silent", "--max-time", "60", "--globoff"];
        command.extend(["--cookie", jar, "--cookie-jar", jar, "--header", &host]);
        command.extend(["--write-out", "\n%{http_code} %{redirect_url}"]);
        command.extend(options);
        command.push(&target);
        let output = self.run(command);
        let (body, end) = output.rsplit_once('\n').unwrap_or_default();
        let (status, location) = end.split_once(' ').unwrap_or_default();
        Answer {
            status: status.parse().unwrap_or_default(),
            location: location.to_owned(),
            body: body.to_owned(),
        }
    }

    /// The status of the readiness probe, sent like a kubelet does.
    fn probe(&self) -> u16 {
        let probe = &self.container.spec["readinessProbe"]["httpGet"];
        let headers = probe["httpHeaders"].as_array().unwrap();
        let named = |name: &str| {
            headers
                .iter()
                .find(|header| header["name"] == name)
                .map(|header| header["value"].as_str().unwrap())
        };
        let forwarded =
            named("X-Forwarded-Proto").map(|scheme| format!("X-Forwarded-Proto: {scheme}"));
        let options: Vec<&str> = forwarded
            .iter()
            .flat_map(|header| ["--header", header])
            .collect();
        let url = format!(
            "http://{}{}",
            named("Host").unwrap(),
            probe["path"].as_str().unwrap()
        );
        self.get(&url, &options).status
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The Pod of a site with a ready database.
fn rendered(spec: &Value) -> Value {
    let request = with_scripts(spec);
    let first = pass(&request);
    pod(&pass(&request.answered(&workloads(&first, 0, 1))), "web")
}

/// A container's variables as a kubelet sets them; each Secret key's value is the key's name.
fn variables(container: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let stated = container["env"].as_array().unwrap().iter().map(|variable| {
        let value = variable
            .get("value")
            .map(|value| text(value).replace("$$(", "$("));
        let key = || text(&variable["valueFrom"]["secretKeyRef"]["key"]);
        (text(&variable["name"]), value.unwrap_or_else(key))
    });
    container["envFrom"]
        .as_array()
        .unwrap()
        .iter()
        .map(|env_from| text(&env_from["prefix"]))
        .flat_map(|prefix| {
            crate::children::SALT_KEYS
                .into_iter()
                .map(move |key| (format!("{prefix}{key}"), key.to_owned()))
        })
        .chain(stated)
        .collect()
}

fn apache(port: &Value) -> String {
    let modules = Path::new("/usr/lib/apache2/modules");
    let files = fs::read_dir(modules)
        .expect(MISSING)
        .map(|entry| entry.unwrap().file_name());
    let is_php = |name: &OsString| name.to_string_lossy().starts_with("libphp");
    let php = files.filter(is_php).max().expect(MISSING);
    let php = modules.join(php);
    format!(
        "ServerName localhost\nListen {port}\nPidFile /mnt/root/apache.pid\nErrorLog /mnt/root/apache.log\n\
         LoadModule mpm_prefork_module {0}/mod_mpm_prefork.so\nLoadModule authz_core_module {0}/mod_authz_core.so\n\
         LoadModule dir_module {0}/mod_dir.so\nLoadModule mime_module {0}/mod_mime.so\n\
         LoadModule php_module {1}\nTypesConfig /etc/mime.types\nDefaultRuntimeDir /mnt/root\n\
         StartServers 4\nDocumentRoot /var/www/html\nDirectoryIndex index.php\nphp_flag display_errors Off\nphp_flag opcache.enable Off\n\
         <FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>\n",
        modules.display(),
        php.display()
    )
}

const MISSING: &str = "Apache, PHP or WordPress is missing: run ./tests/setup --only programs";

/// The WordPress files.
#[expect(
    clippy::disallowed_methods,
    reason = "the path that tests/environment sets"
)]
fn wordpress() -> PathBuf {
    let path = std::env::var_os("INNKEEPER_WORDPRESS").expect("tests/environment was read");
    let path = PathBuf::from(path);
    assert!(path.join("wp-settings.php").exists(), "{MISSING}");
    path
}

/// A one-page theme that shows how WordPress sees the request.
const THEME: [(&str, &str); 3] = [
    ("themes/plain/style.css", "/* Theme Name: Plain */"),
    (
        "themes/plain/index.php",
        "<?php echo home_url('/'), is_ssl() ? ' TLS' : ' plain';",
    ),
    ("themes/plain/functions.php", "<?php"),
];

const FATAL: &str = "<?php no_such_function();";

/// Installs WordPress at this address.
fn install(web: &Web, address: &str) {
    assert_eq!(web.probe(), 200, "{}", web.log());
    for (name, text) in THEME {
        web.write(name, text);
    }
    let url = format!("{address}/wp-admin/install.php?step=2");
    let form = web.get(&url, &["--data", FORM]);
    assert!(form.body.contains("Success!"), "{form:?}");
    assert_eq!(web.probe(), 200, "{}", web.log());
}

/// Logs in at an address; the cookies stay with it.
fn sign_in(web: &Web, address: &str) {
    let url = format!("{address}/wp-login.php");
    web.get(&url, &[]);
    let form = web.get(&url, &["--data", LOGIN]);
    assert_eq!(form.location, format!("{address}/wp-admin/"), "{form:?}");
}

#[test]
fn a_site_without_routes_answers_at_each_address() {
    let Some(web) = Web::new(&json!({})) else {
        return;
    };
    let addresses = [
        "http://localhost:8080",
        "http://203.0.113.7:30080",
        "http://shop.default.svc",
        "http://[2001:db8::5]:30080",
    ];
    for address in addresses {
        let home = web.get(&format!("{address}/"), &[]);
        let installer = format!("{address}/wp-admin/install.php");
        assert_eq!((home.status, &home.location), (302, &installer));
        assert_eq!(web.get(&installer, &[]).status, 200);
    }
    install(&web, addresses[0]);
    for address in addresses {
        let home = web.get(&format!("{address}/"), &[]);
        assert_eq!((home.status, home.body), (200, format!("{address}/ plain")));
        let dashboard = web.get(&format!("{address}/wp-admin/"), &[]);
        let login = format!("{address}/wp-login.php?");
        assert!(dashboard.location.starts_with(&login), "{dashboard:?}");
        sign_in(&web, address);
        let dashboard = web.get(&format!("{address}/wp-admin/"), &[]);
        assert_eq!(dashboard.status, 200, "{dashboard:?}");
    }
}

#[test]
fn behind_a_proxy_with_tls_no_redirect_leads_into_a_loop() {
    if !is_full() {
        return;
    }
    let routes = json!([{ "domain": "shop.example.com" }, { "domain": "www.shop.example.com" }]);
    let forwarded = ["--header", "X-Forwarded-Proto: https"];
    let table = [
        (json!({ "routes": routes, "externalScheme": "https" }), true),
        (json!({ "routes": routes, "tlsSecretRef": "tls" }), true),
        (json!({ "externalScheme": "https" }), true),
        (json!({ "routes": routes }), false),
        (json!({}), false),
    ];
    let Some(mut web) = Web::new(&table[0].0) else {
        return;
    };
    install(&web, "https://shop.example.com");
    for (spec, is_stated) in table {
        web.start(&spec);
        assert_eq!(web.probe(), 200, "{spec}");
        // Not every proxy sends the scheme.
        for (options, is_tls) in [(&[][..], is_stated), (&forwarded, true)] {
            let (scheme, seen) = if is_tls {
                ("https", "TLS")
            } else {
                ("http", "plain")
            };
            let address = format!("{scheme}://shop.example.com");
            let home = web.get("https://shop.example.com/", options);
            assert_eq!(
                (home.status, home.body),
                (200, format!("{address}/ {seen}")),
                "{spec} {options:?}"
            );
            let dashboard = web.get("https://shop.example.com/wp-admin/", options);
            let login = format!("{address}/wp-login.php?");
            assert!(
                dashboard.location.starts_with(&login),
                "{spec} {options:?} {dashboard:?}"
            );
            assert_eq!(
                web.get("https://shop.example.com/wp-login.php", options)
                    .status,
                200,
                "{spec} {options:?}"
            );
        }
    }
}

/// How a site is damaged, and the resulting status of page, probe and dashboard.
type Damage = (&'static str, fn(&Web), [u16; 3]);

/// Runs a statement as the database's root user.
fn sql(web: &Web, statement: &str) {
    web.run([
        "mariadb",
        "-u",
        "root",
        "--socket=/mnt/root/database.socket",
        "-e",
        statement,
    ]);
}

fn activate(web: &Web, plugins: &str) {
    sql(
        web,
        &format!(
            "UPDATE wordpress.wp_options SET option_value = '{plugins}' WHERE option_name = 'active_plugins'"
        ),
    );
}

/// Repairs every damage except those in the database.
fn repair(web: &mut Web) {
    for (name, text) in THEME {
        web.write(name, text);
    }
    activate(web, "a:0:{}");
    for directory in ["mu-plugins", "plugins"] {
        fs::remove_dir_all(web.content(directory)).ok();
    }
    fs::remove_file(web.html(".maintenance")).ok();
    // Like each Pod start.
    web.copy_core(&rendered(&json!({})));
}

const DAMAGES: [Damage; 13] = [
    ("nothing", |_| {}, [200, 200, 200]),
    (
        "page of the theme",
        |web| web.write(THEME[1].0, FATAL),
        [500, 200, 200],
    ),
    (
        "page with a password",
        |web| web.write(THEME[1].0, "<?php http_response_code(401);"),
        [401, 200, 200],
    ),
    (
        "functions of the theme",
        |web| web.write(THEME[2].0, FATAL),
        [500, 200, 500],
    ),
    (
        "plugin",
        |web| {
            web.write(
                "plugins/broken.php",
                &format!("{FATAL} // Plugin Name: Broken"),
            );
            activate(web, "a:1:{i:0;s:10:\"broken.php\";}");
        },
        [500, 200, 500],
    ),
    (
        "maintenance",
        |web| fs::write(web.html(".maintenance"), "<?php $upgrading = time();").unwrap(),
        [503, 200, 503],
    ),
    // No link leads an administrator around these.
    (
        "must-use plugin",
        |web| web.write("mu-plugins/broken.php", FATAL),
        [500, 500, 500],
    ),
    (
        "core",
        |web| fs::write(web.html("wp-settings.php"), FATAL).unwrap(),
        [500, 500, 500],
    ),
    (
        "cut core",
        |web| fs::write(web.html("wp-includes/functions.php"), "<?php (").unwrap(),
        [500, 500, 500],
    ),
    (
        "user",
        |web| sql(web, "RENAME USER username TO other"),
        [500, 500, 500],
    ),
    (
        "tables",
        |web| {
            sql(
                web,
                "RENAME USER other TO username; DROP DATABASE wordpress; CREATE DATABASE wordpress",
            );
        },
        [302, 200, 302],
    ),
    (
        "schema",
        |web| sql(web, "DROP DATABASE wordpress"),
        [500, 500, 500],
    ),
    ("server", |web| sql(web, "SHUTDOWN"), [500, 500, 500]),
];

#[test]
fn a_site_is_ready_while_its_administrator_can_mend_it() {
    if !is_full() {
        return;
    }
    let Some(mut web) = Web::new(&json!({})) else {
        return;
    };
    install(&web, "http://shop");
    sign_in(&web, "http://shop");
    for (name, damage, expected) in DAMAGES {
        repair(&mut web);
        damage(&web);
        let status = |path: &str| web.get(&format!("http://shop/{path}"), &[]).status;
        assert_eq!(
            [status(""), web.probe(), status("wp-admin/")],
            expected,
            "{name}: {}",
            web.log()
        );
        if expected == [500, 200, 500] {
            // The link that WordPress sends, and the dashboard without the broken part.
            let link = web.get("http://shop/recovery.php", &[]).body;
            let entered = web.get(&link, &[]);
            assert!(
                entered
                    .location
                    .ends_with("/wp-login.php?action=entered_recovery_mode"),
                "{name}: {entered:?}"
            );
            // The first request detects the broken part.
            status("wp-admin/");
            assert_eq!(status("wp-admin/"), 200, "{name}");
            // A session without recovery mode.
            repair(&mut web);
            fs::remove_file(web.container.root.join("cookies")).unwrap();
            sign_in(&web, "http://shop");
        }
    }
}
