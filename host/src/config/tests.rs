//! Command lines and what becomes of them.

use std::{fs, path::Path, time::Duration};

use super::*;

fn parse(arguments: &[&str]) -> Result<Config, Error> {
    let given = ["innkeeper", "--log", "info"].iter().chain(arguments);
    read(given.map(OsString::from))
}

fn run(arguments: &[&str]) -> RunSettings {
    let fixed = ["run", "--cache-dir", "/cache", "--host-namespace", "host"];
    match parse(&[&fixed[..], arguments].concat()).unwrap().command {
        Command::Run(settings) => settings,
        other => panic!("{other:?}"),
    }
}

fn rejection(arguments: &[&str]) -> String {
    match parse(arguments).unwrap_err() {
        Error::CommandLine(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn fills_in_every_limit() {
    let settings = run(&["--plugin", "a.wasm", "b.wasm", "--plugin", "c.wasm"]);
    let files: Vec<_> = settings
        .plugins
        .files
        .iter()
        .map(|file| &file.path)
        .collect();
    assert_eq!(
        files,
        [
            Path::new("a.wasm"),
            Path::new("b.wasm"),
            Path::new("c.wasm")
        ]
    );
    assert_eq!(settings.cluster.host_namespace, "host");
    assert_eq!(settings.plugins.drain.as_secs(), 25);
    assert!(settings.plugins.workers.get() >= 1);
    assert!(settings.plugins.remember_passes);
    assert_eq!(settings.plugins.resync_period, Duration::from_hours(10));
    let forgetful = run(&["--plugin", "a.wasm", "--forget-passes"]);
    assert!(!forgetful.plugins.remember_passes);
}

#[test]
fn plugin_resources_are_served_where_no_plugin_files_are_given_or_as_said() {
    let settings = run(&["--source-dir", "/plugins"]);
    assert!(settings.plugins.files.is_empty());
    let sources = settings.sources.unwrap();
    assert_eq!(sources.dir.as_deref(), Some(Path::new("/plugins")));
    assert!(!sources.allow_local);
    let usual = run(&[]).sources.unwrap();
    let expected = SourceSettings {
        // Those of whoever runs this.
        proxies: usual.proxies.clone(),
        ..SourceSettings::default()
    };
    assert_eq!(usual, expected);
    assert_eq!(run(&["--plugin", "a.wasm"]).sources, None);
    let both = run(&[
        "--plugin",
        "a.wasm",
        "--plugin-resources",
        "--source-dir",
        "/plugins",
    ]);
    assert_eq!(both.plugins.files.len(), 1);
    let dir = both.sources.unwrap().dir;
    assert_eq!(dir.as_deref(), Some(Path::new("/plugins")));
}

#[test]
fn says_how_sources_are_reached() {
    let dir = tempfile::tempdir().unwrap();
    let pem = "an authority\n-----BEGIN CERTIFICATE-----\n";
    let authority = file(dir.path(), "ca.pem", pem);
    let mirrors = "ghcr.io=a.example,quay.io=http://b.example/quay";
    let settings = run(&[
        "--source-ca-file",
        &authority,
        "--source-mirror",
        mirrors,
        "--source-mirror",
        "ghcr.io=c.example",
    ]);
    let sources = settings.sources.unwrap();
    assert_eq!(sources.certificates_pem, pem.as_bytes());
    assert_eq!(sources.mirrors["ghcr.io"], ["a.example", "c.example"]);
    assert_eq!(sources.mirrors["quay.io"], ["http://b.example/quay"]);

    let missing = rejection(&["run", "--source-ca-file", "/none"]);
    assert_eq!(missing, "failed to read /none, the trusted authorities");
    let empty = file(dir.path(), "empty.pem", "");
    let refused = rejection(&["run", "--source-ca-file", &empty]);
    assert!(
        refused.ends_with("empty.pem: give the authorities as PEM"),
        "{refused}"
    );
    for text in ["ghcr.io", "=a", "a=", "ghcr.io/a=b", "a=b,c"] {
        let refused = rejection(&["run", "--source-mirror", text]);
        let said = "of --source-mirror is not REGISTRY=MIRROR: write it as ghcr.io=mirror.example";
        assert!(refused.contains(said), "{refused}");
    }
    let alone = rejection(&["run", "--plugin", "a.wasm", "--source-ca-file", &authority]);
    let said = "--source-ca-file is for Plugin resources";
    assert!(alone.contains(said), "{alone}");
}

#[test]
fn takes_the_wasm_files_of_a_directory_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b.wasm", "a.wasm", "readme.md"] {
        file(dir.path(), name, "");
    }
    let settings = run(&["--plugin-dir", dir.path().to_str().unwrap()]);
    let names: Vec<_> = settings
        .plugins
        .files
        .iter()
        .map(|file| file.path.file_name().unwrap())
        .collect();
    assert_eq!(names, ["a.wasm", "b.wasm"]);
}

#[test]
fn reads_the_configuration_of_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "a.yaml", "image: x\n");
    let settings = run(&["--plugin", "a.wasm", "--config", &format!("a={given}")]);
    assert_eq!(settings.plugins.configs["a"]["image"], "x");
}

#[test]
fn reads_what_plugins_may_do() {
    let dir = tempfile::tempdir().unwrap();
    let given = file(dir.path(), "a.yaml", "children: [{kind: Pod}]\n");
    let named = format!("a={given}");
    let settings = run(&["--plugin", "a.wasm", "--grants", &named]);
    let granted = &settings.plugins.grants["a"];
    assert_eq!(granted["children"][0]["kind"], "Pod");
    let twice = [
        "run", "--plugin", "a", "--grants", &named, "--grants", &named,
    ];
    let message = rejection(&twice);
    assert!(message.contains("two files of its grants"), "{message}");
}

#[test]
fn rejects_what_it_does_not_understand() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let list = file(dir.path(), "list.yaml", "[1]\n");
    let broken = file(dir.path(), "broken.yaml", "a: [\n");
    let cases: &[(&[&str], &str)] = &[
        (&["dev", "--kubeconfig", "a"], "--plugin"),
        (
            &["run", "--plugin", "a", "--source-dir", "b"],
            "--source-dir is for Plugin resources",
        ),
        (&["run", "--plugin", "a", "--unknown"], "--unknown"),
        (&["run", "--plugin", "a", "--workers", "0"], "workers"),
        (&["run", "--plugin", "a", "--config", "a"], "PLUGIN=FILE"),
        (&["run", "--plugin", "a", "--grants", "a"], "PLUGIN=FILE"),
        (
            &["run", "--plugin", "a", "--grants", "a=/none"],
            "the grants of",
        ),
        (
            &["run", "--plugin-dir", "/does/not/exist"],
            "/does/not/exist",
        ),
        (
            &["run", "--plugin-dir", empty],
            "no file that ends in .wasm",
        ),
        (&["run", "--plugin", "a", "--config", "a=/none"], "/none"),
        (
            &["run", "--plugin", "a", "--config", &format!("a={list}")],
            "exactly one object",
        ),
        (
            &["run", "--plugin", "a", "--config", &format!("a={broken}")],
            "failed to parse",
        ),
        (&["dev", "--plugin", "a"], "--controlplane"),
        (&["manifests", "--plugin", "a", "--image", ""], "--image"),
        (
            &[
                "dev",
                "--plugin",
                "a",
                "--kubeconfig",
                "k",
                "--controlplane",
                "c",
            ],
            "cannot be used",
        ),
    ];
    for (arguments, expected) in cases {
        let message = rejection(arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn l2_hosts_with_a_kubeconfig_take_turns_only_when_told_to() {
    let lease = |arguments: &[&str]| {
        let fixed = [
            "--plugin",
            "a",
            "--kubeconfig",
            "k",
            "--lease-identity",
            "a",
        ];
        run(&[&fixed[..], arguments].concat()).lease
    };
    assert_eq!(lease(&[]), None);
    assert_eq!(lease(&["--leader-elect=false"]), None);
    let LeaseSettings {
        name,
        identity,
        times,
    } = lease(&["--leader-elect"]).unwrap();
    assert_eq!((&*name, &*identity), ("innkeeper", "a"));
    let seconds = [times.duration, times.renew_deadline, times.retry].map(|time| time.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
}

#[test]
fn l2_rejects_a_lease_that_leaves_the_holder_no_time_to_stop() {
    for (flag, seconds, expected) in [
        (
            "--lease-duration",
            "10",
            "--lease-duration 10 must be more than --lease-renew-deadline 10",
        ),
        ("--lease-retry", "10", "more than --lease-retry 10"),
        ("--lease-retry", "8", "more than --lease-retry 8"),
        ("--lease-retry", "0", "lease-retry"),
    ] {
        let message = rejection(&["run", "--plugin", "a", "--leader-elect", flag, seconds]);
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_named_must_be_there() {
    let settings = Connection {
        kubeconfig: Some(PathBuf::from("/does/not/exist")),
        context: None,
    };
    let error = client_config(&settings).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "failed to use the kubeconfig /does/not/exist (--kubeconfig): mend it, or give another by --kubeconfig or KUBECONFIG"
    );
}

#[tokio::test]
async fn l6_an_authority_that_is_a_file_is_read_again_and_others_are_not() {
    // A certificate need not be one before it is used.
    const DATA: &str =
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ca.crt"), PEM).unwrap();
    let read = async |authority: &str| {
        let path = directory.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'https://h', {authority}}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        );
        fs::write(&path, text).unwrap();
        let connection = Connection {
            kubeconfig: Some(path),
            context: None,
        };
        client_config(&connection).await.unwrap().root_cert_file
    };
    let data = format!("certificate-authority-data: {DATA}");
    assert_eq!(read("").await, None);
    assert_eq!(read(&data).await, None);
    assert_eq!(
        read("certificate-authority: ca.crt").await,
        Some(directory.path().join("ca.crt"))
    );
    // As for everybody who reads kubeconfigs, the text counts where there is both.
    assert_eq!(
        read(&format!("certificate-authority: ca.crt, {data}")).await,
        None
    );
}

#[test]
fn namespaces_are_taken_in_order_and_bad_ones_are_named() {
    assert_eq!(run(&["--plugin", "a.wasm"]).scope, ScopeSettings::default());
    let settings = run(&[
        "--plugin",
        "a.wasm",
        "--namespaces",
        "b,a-1",
        "--crds",
        "ignore",
    ]);
    let expected = ScopeSettings {
        namespaces: Some(vec!["a-1".to_owned(), "b".to_owned()]),
        crds: Definitions::Ignore,
    };
    assert_eq!(settings.scope, expected);
    let long = "x".repeat(64);
    for (given, part) in [
        ("", "names no namespace: name one or more"),
        ("a,,b", "names no namespace: name one or more"),
        (
            "a,B",
            "\"B\" of --namespaces is not the name of a namespace: use",
        ),
        (
            "a b",
            "\"a b\" of --namespaces is not the name of a namespace: use",
        ),
        ("-a", "\"-a\" of --namespaces"),
        ("a.b", "\"a.b\" of --namespaces"),
        (&long, "is not the name of a namespace: use"),
        ("a,b,a", "names a twice: name each namespace once"),
    ] {
        for command in ["run", "manifests"] {
            let given = format!("--namespaces={given}");
            let said = rejection(&[command, "--plugin", "a.wasm", &given]);
            assert!(said.contains(part), "{command} {given}: {said}");
        }
    }
}

#[test]
fn a_plugin_selector_is_read_as_kubectl_reads_one() {
    let settings = run(&["--plugin-selector", " team in (a, b),!old "]);
    let selector = settings.sources.unwrap().selector;
    assert_eq!(selector.as_deref(), Some("team in (a, b),!old"));
    for (given, part) in [
        ("", "--plugin-selector is empty: leave it out"),
        ("team in a", "failed to understand --plugin-selector"),
    ] {
        let given = format!("--plugin-selector={given}");
        let said = rejection(&["run", &given]);
        assert!(said.contains(part), "{given}: {said}");
    }
    let said = rejection(&["run", "--plugin", "a.wasm", "--plugin-selector", "a=b"]);
    let unserved = "--plugin-selector is for Plugin resources";
    assert!(said.contains(unserved), "{said}");
}

#[test]
fn l2_hosts_that_do_other_work_do_not_wait_for_each_other() {
    let name = |arguments: &[&str]| {
        let arguments = [&["--leader-elect"], arguments].concat();
        run(&arguments).lease.unwrap().name
    };
    assert_eq!(name(&[]), "innkeeper");
    let names = [
        name(&["--plugin-selector", "team=a"]),
        name(&["--plugin-selector", "team=b"]),
        name(&["--namespaces", "a"]),
        name(&["--namespaces", "a,b"]),
        name(&["--namespaces", "a", "--plugin-selector", "team=a"]),
    ];
    let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    for one in &names {
        let hash = one.strip_prefix("innkeeper-").unwrap();
        assert_eq!(hash.len(), 10, "{one}");
    }
    // Those that take turns have the same values, in whatever order.
    assert_eq!(name(&["--namespaces", "b,a"]), names[3]);
    let given = ["--plugin-selector", "team=a", "--lease-name", "mine"];
    assert_eq!(name(&given), "mine");
}
