//! Kubeconfigs as `kubectl` reads them: each row has the same outcome as with `kubectl`.

mod proxies;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use innkeeper_tests::{ControlPlane, manifest, process::path_from_env};
use serde_json::{Value, json};

use proxies::{Kind, Proxy, USER};

/// Exit codes of `innkeeper status` when the cluster answered.
const ANSWERED: [i32; 2] = [0, 3];

/// A secret that commands print and proxies receive, but no message may contain.
const SECRET: &str = "s3cret";

/// A context copied from a working kubeconfig, with changes.
#[derive(Default)]
struct Row {
    name: &'static str,
    /// Changes to the cluster, the user and the context.
    cluster: Value,
    user: Value,
    context: Value,
    /// An environment variable. `{}` stands for the kubeconfig.
    env: Option<(&'static str, String)>,
    /// Part of the error message; without one, the cluster must answer.
    refused: Option<&'static str>,
}

/// A directory with kubeconfigs and the files that they name.
struct Files {
    root: PathBuf,
    /// A working kubeconfig's content.
    working: Value,
}

impl Files {
    /// Creates a directory with this name, because tests run concurrently.
    fn new(name: &str) -> Self {
        let plane = ControlPlane::shared();
        let root = plane.directory().join("kubeconfigs").join(name);
        fs::create_dir_all(&root).unwrap();
        let text = fs::read_to_string(plane.kubeconfig()).unwrap();
        let working = manifest::parse(&text).unwrap().remove(0);
        Self { root, working }
    }

    fn token(&self) -> &str {
        self.working["users"][0]["user"]["token"].as_str().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root.join(name), text).unwrap();
    }

    fn script(&self, name: &str, text: &str) {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.root.join(name), Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a row's kubeconfig and returns the path.
    fn kubeconfig(&self, row: &Row) -> PathBuf {
        let mut kubeconfig = self.working.clone();
        merge(&mut kubeconfig["clusters"][0]["cluster"], &row.cluster);
        if !row.user.is_null() {
            kubeconfig["users"][0]["user"] = row.user.clone();
        }
        merge(&mut kubeconfig["contexts"][0]["context"], &row.context);
        self.write("kubeconfig", &kubeconfig.to_string());
        self.root.join("kubeconfig")
    }

    fn run(&self, mut command: Command, path: &Path, row: &Row) -> Output {
        for variable in [
            "KUBECONFIG",
            "HTTPS_PROXY",
            "https_proxy",
            "NO_PROXY",
            "no_proxy",
        ] {
            command.env_remove(variable);
        }
        let path = path.to_str().unwrap();
        match &row.env {
            Some(("KUBECONFIG", files)) => {
                command.env("KUBECONFIG", files.replace("{}", path));
            }
            env => {
                command.args(["--kubeconfig", path]);
                command.envs(env.iter().map(|(name, value)| (name, value)));
            }
        }
        // Without a home directory, there is no default kubeconfig.
        command
            .env("HOME", &self.root)
            .current_dir("/")
            .output()
            .unwrap()
    }

    /// Checks the outcomes of `innkeeper` and `kubectl`.
    #[track_caller]
    fn check(&self, row: &Row) {
        let path = self.kubeconfig(row);
        let mut status = Command::new(path_from_env("INNKEEPER_BIN").unwrap());
        status.arg("status").stdin(std::process::Stdio::null());
        let output = self.run(status, &path, row);
        let error = String::from_utf8_lossy(&output.stderr);
        let shown = format!(
            "{}: {}{error}",
            row.name,
            String::from_utf8_lossy(&output.stdout)
        );
        assert!(!shown.contains(SECRET), "{shown}");
        let has_answer = output
            .status
            .code()
            .is_some_and(|code| ANSWERED.contains(&code));
        assert_eq!(has_answer, row.refused.is_none(), "{shown}");
        assert!(error.contains(row.refused.unwrap_or_default()), "{shown}");

        let mut kubectl = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap());
        kubectl
            .args(["kubectl", "get", "namespaces", "--request-timeout", "20s"])
            .arg("--cache-dir")
            .arg(self.root.join("cache"))
            .stdin(std::process::Stdio::null());
        let kubectl = self.run(kubectl, &path, row);
        assert_eq!(
            kubectl.status.success(),
            row.refused.is_none(),
            "{}: {kubectl:?}",
            row.name
        );
    }
}

/// Merges fields; null removes one.
fn merge(object: &mut Value, changes: &Value) {
    let object = object.as_object_mut().unwrap();
    for (field, value) in changes.as_object().into_iter().flatten() {
        if value.is_null() {
            object.remove(field);
        } else {
            object.insert(field.clone(), value.clone());
        }
    }
}

fn row(name: &'static str) -> Row {
    Row {
        name,
        ..Row::default()
    }
}

fn user(name: &'static str, user: Value, refused: Option<&'static str>) -> Row {
    Row {
        user,
        refused,
        ..row(name)
    }
}

#[test]
fn a_proxy_of_a_kubeconfig_carries_all_requests() {
    let files = Files::new("proxies");
    for kind in [Kind::Http, Kind::Https(proxies::tls()), Kind::Socks] {
        for requires_user in [false, true] {
            let proxy = Proxy::start(&kind, requires_user);
            for (user, env) in [
                ("", None),
                (USER, None),
                (USER, Some(("NO_PROXY", "*".to_owned()))),
            ] {
                let is_refused = requires_user && user.is_empty();
                // A SOCKS proxy may insist on no user, too; `kubectl` offers both.
                if matches!(kind, Kind::Socks) && !requires_user && !user.is_empty() {
                    continue;
                }
                let mut cluster = json!({"proxy-url": proxy.url(user)});
                if matches!(kind, Kind::Https(_)) {
                    cluster["insecure-skip-tls-verify"] = true.into();
                    cluster["certificate-authority-data"] = Value::Null;
                }
                files.check(&Row {
                    cluster,
                    env,
                    refused: is_refused.then_some("failed to ask the cluster"),
                    ..row("a proxy")
                });
                assert_eq!(proxy.take_tunnels() > 1, !is_refused, "{}", proxy.url(user));
            }
        }
    }
    for (url, refused) in [
        (
            "socks4://127.0.0.1:1",
            "it has the scheme \"socks4\": use http, https or socks5",
        ),
        (
            "127.0.0.1:1",
            "it is not an address such as http://HOST:PORT",
        ),
        ("http://127.0.0.1:1", "failed to ask the cluster"),
    ] {
        files.check(&Row {
            cluster: json!({"proxy-url": url}),
            refused: Some(refused),
            ..row("an unusable proxy")
        });
    }
}

#[test]
fn a_token_file_is_read_without_the_space_around_it() {
    let files = Files::new("tokens");
    let token = files.token().to_owned();
    let check = |name, text: &str, refused| {
        files.write("token", text);
        files.check(&user(name, json!({"tokenFile": "token"}), refused));
    };
    check("as it is", &token, None);
    check("a newline", &format!("{token}\n"), None);
    check("a carriage return", &format!("{token}\r\n"), None);
    check("spaces", &format!("  {token} \t\n\n"), None);
    check("empty", "", Some("/token is empty"));
    check("only space", " \n", Some("/token is empty"));
    check(
        "two lines",
        &format!("{token}\n{token}\n"),
        Some("the token has characters that no token has"),
    );
    for (name, user_fields, refused) in [
        (
            "a missing file",
            json!({"tokenFile": "none"}),
            Some("failed to read the token file"),
        ),
        (
            "a directory",
            json!({"tokenFile": "."}),
            Some("failed to read the token file"),
        ),
        (
            "a token beside a missing file",
            json!({"tokenFile": "none", "token": token}),
            None,
        ),
    ] {
        files.check(&user(name, user_fields, refused));
    }
    files.write("token", &token);
    let both = json!({"tokenFile": "token", "token": "another"});
    files.check(&user("another token beside the file", both, None));
}

#[test]
fn files_of_the_variable_may_be_missing_and_their_first_values_count() {
    let files = Files::new("variable");
    files.write(
        "other",
        r#"{"current-context": "", "contexts": [], "users": [], "clusters": null}"#,
    );
    let root = files.root.to_str().unwrap();
    let other = format!("{root}/other:{{}}");
    let broken = format!("{{}}:{root}");
    for (name, value, refused) in [
        ("one file", "{}", None),
        ("a missing file first", "/none/a:{}", None),
        ("a missing file last", "{}:/none/a", None),
        ("an empty name", "/none/a::{}:", None),
        ("a file without a context first", &*other, None),
        (
            "only missing files",
            "/none/a:/none/b",
            Some("names only files that do not exist, /none/a and /none/b"),
        ),
        ("only a separator", ":", Some("found no cluster")),
        (
            "an unreadable one",
            &*broken,
            Some("failed to use the kubeconfig that KUBECONFIG names"),
        ),
    ] {
        let env = Some(("KUBECONFIG", value.to_owned()));
        files.check(&Row {
            env,
            refused,
            ..row(name)
        });
    }
}

#[test]
fn a_context_without_its_user_or_cluster_is_refused() {
    let files = Files::new("contexts");
    let token = files.token();
    for (name, context, user, refused) in [
        (
            "a missing user",
            json!({"user": "none"}),
            Value::Null,
            "names the user \"none\", which is not in it",
        ),
        (
            "no user",
            json!({"user": null}),
            Value::Null,
            "names no user",
        ),
        ("an empty user", json!({}), json!({}), "has no credentials"),
        (
            "a missing cluster",
            json!({"cluster": "none"}),
            Value::Null,
            "names the cluster \"none\", which is not in it",
        ),
        (
            "a missing client certificate",
            json!({}),
            json!({"client-certificate": "none", "client-key": "none"}),
            "contexts/none",
        ),
        (
            "a certificate without a key beside a token",
            json!({}),
            json!({"client-certificate": "kubeconfig", "token": token}),
            "client key",
        ),
    ] {
        files.check(&Row {
            context,
            user,
            refused: Some(refused),
            ..row(name)
        });
    }
    files.check(&Row {
        cluster: json!({"certificate-authority": "none", "certificate-authority-data": null}),
        refused: Some("contexts/none"),
        ..row("a missing authority")
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_command_gives_credentials_or_is_named() {
    const V1: &str = "client.authentication.k8s.io/v1";
    const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";
    let files = Files::new("commands");
    let print = |version: &str, status: Value| {
        let printed = json!({"kind": "ExecCredential", "apiVersion": version, "status": status});
        format!("echo '{printed}'")
    };
    let token = json!({"token": files.token()});
    files.script("good", &print(V1, token.clone()));
    files.script("beta", &print(V1BETA1, token.clone()));
    files.script("secret", &print(V1BETA1, json!({"token": SECRET})));
    files.script(
        "argued",
        &format!(
            "[ \"$1 $2 $FLAVOUR\" = 'a b c' ] || exit 4\n{}",
            print(V1, token.clone())
        ),
    );
    files.script(
        "asked",
        &format!(
            "case $KUBERNETES_EXEC_INFO in *'\"server\":\"https://'*) ;; *) exit 4 ;; esac\n{}",
            print(V1, token)
        ),
    );
    files.script("failing", &format!("echo {SECRET}; exit 7"));
    files.script("garbage", &format!("echo {SECRET} {{"));
    files.script("silent", "");
    files.script("bare", &print(V1, json!({})));
    files.script(
        "half",
        &print(V1, json!({"token": "t", "clientKeyData": SECRET})),
    );
    let absolute = files.root.join("good").to_str().unwrap().to_owned();

    let exec =
        |command: &str| json!({"apiVersion": V1, "interactiveMode": "Never", "command": command});
    let with = |command: &str, field: &str, value: Value| {
        let mut exec = exec(command);
        merge(&mut exec, &json!({field: value}));
        exec
    };
    let mut argued = with("./argued", "args", json!(["a", "b"]));
    argued["env"] = json!([{"name": "FLAVOUR", "value": "c"}]);
    for (name, exec, refused) in [
        ("absolute", exec(&absolute), None),
        ("relative to the file", exec("./good"), None),
        ("arguments and variables", argued, None),
        (
            "the cluster",
            with("./asked", "provideClusterInfo", true.into()),
            None,
        ),
        (
            "if available",
            with("./good", "interactiveMode", "IfAvailable".into()),
            None,
        ),
        (
            "an older format",
            json!({"apiVersion": V1BETA1, "command": "./beta"}),
            None,
        ),
        (
            "a missing command",
            with("no-such-command", "installHint", "brew install it".into()),
            Some(
                "failed to run the command no-such-command: No such file or directory (os error 2); its installHint is: brew install it",
            ),
        ),
        (
            "not executable",
            exec("./kubeconfig"),
            Some("kubeconfig: Permission denied"),
        ),
        (
            "failing",
            exec("./failing"),
            Some("failing ended with exit status: 7"),
        ),
        (
            "garbage",
            exec("./garbage"),
            Some("garbage is no ExecCredential"),
        ),
        (
            "no output",
            exec("./silent"),
            Some("silent is no ExecCredential"),
        ),
        (
            "no credentials",
            exec("./bare"),
            Some("bare has neither a token nor a certificate"),
        ),
        (
            "half a pair",
            exec("./half"),
            Some("half has a certificate or a key without the other"),
        ),
        (
            "another format than asked for",
            exec("./secret"),
            Some("secret has another apiVersion than client.authentication.k8s.io/v1"),
        ),
        (
            "an unknown format",
            with("./good", "apiVersion", "v9".into()),
            Some("it has the apiVersion \"v9\""),
        ),
        (
            "no format",
            with("./good", "apiVersion", Value::Null),
            Some("it has the apiVersion \"\""),
        ),
        (
            "no mode",
            with("./good", "interactiveMode", Value::Null),
            Some("it has no interactiveMode"),
        ),
        (
            "no terminal",
            with("./good", "interactiveMode", "Always".into()),
            Some("needs a terminal"),
        ),
        (
            "no command",
            with("./good", "command", Value::Null),
            Some("it has no command"),
        ),
    ] {
        files.check(&user(name, json!({"exec": exec}), refused));
    }
    let provider = json!({"auth-provider": {"name": "gcp", "config": {"cmd-path": "./failing"}}});
    files.check(&user(
        "a provider that is gone",
        provider,
        Some("the auth-provider \"gcp\""),
    ));
}
