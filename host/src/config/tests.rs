//! Command lines and their settings.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use innkeeper_authoring::Inspected;
use innkeeper_command::Definitions;
use innkeeper_server::{ConnectionArgs, LeaseArgs, ScopeArgs, client_config};
use innkeeper_source::tests::{P256_KEY, P256_PUB};

use super::*;

fn parse(arguments: &[&str]) -> Result<Cli, Error> {
    let input = ["innkeeper", "--log", "info"].iter().chain(arguments);
    read(input.map(OsString::from))
}

fn run(arguments: &[&str]) -> RunArgs {
    let fixed = ["run", "--cache-dir", "/cache", "--host-namespace", "host"];
    match parse(&[&fixed[..], arguments].concat()).unwrap().command {
        Command::Run(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn rejection(arguments: &[&str]) -> String {
    match parse(arguments).unwrap_err() {
        Error::CommandLine(error) => error.to_string(),
        Error::Settings(failure) => failure.to_string(),
    }
}

/// Checks that each command line is rejected with a message that contains the text beside it.
#[track_caller]
fn check_rejections(cases: &[(&[&str], &str)]) {
    for (arguments, expected) in cases {
        let message = rejection(arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn fills_in_every_limit() {
    let args = run(&["--plugin", "a.wasm", "b.wasm", "--plugin", "c.wasm"]);
    assert_eq!(
        args.plugins.files(),
        [
            Path::new("a.wasm"),
            Path::new("b.wasm"),
            Path::new("c.wasm")
        ]
    );
    assert_eq!(args.cluster.host_namespace, "host");
    assert_eq!(args.cluster.host_namespaces(), ["host"]);
    assert_eq!(args.plugins.drain.as_secs(), 25);
    assert!(args.plugins.workers.get() >= 2);
    assert!(!args.plugins.forget_passes);
    assert_eq!(args.plugins.resync_period, Duration::from_hours(10));
    assert_eq!(args.plugins.cache_bytes_max, 512 << 20);
    let pod = |name| run(&["--plugin", "a.wasm", "--pod-namespace", name]);
    assert_eq!(pod("pods").cluster.host_namespaces(), ["host", "pods"]);
    assert_eq!(pod("host").cluster.host_namespaces(), ["host"]);
    let input = "--plugin a.wasm --forget-passes --guest-memory 16 --workers 3 --drain-timeout 0 --cache-size 20";
    let input = run(&input.split(' ').collect::<Vec<_>>());
    assert!(input.plugins.forget_passes);
    assert_eq!(input.plugins.guest_memory_bytes_max, Some(16 << 20));
    assert_eq!(input.plugins.cache_bytes_max, 20 << 20);
    assert_eq!(input.plugins.workers.get(), 3);
    assert_eq!(input.plugins.drain, Duration::ZERO);
}

#[test]
fn plugin_resources_are_served_where_no_plugin_files_are_given_or_as_said() {
    let args = run(&["--source-dir", "/plugins"]);
    assert!(args.serves_resources() && args.plugins.files().is_empty());
    let settings = args.sources.settings();
    assert_eq!(settings.source_dir.as_deref(), Some(Path::new("/plugins")));
    assert!(!settings.allow_local);
    let usual = run(&[]);
    assert!(usual.serves_resources());
    let settings = usual.sources.settings();
    let expected = innkeeper_source::Settings {
        // Those of the environment of this test.
        proxies: settings.proxies.clone(),
        ..innkeeper_source::Settings::default()
    };
    assert_eq!(settings, expected);
    assert!(!run(&["--plugin", "a.wasm"]).serves_resources());
    let both = "--plugin a.wasm --plugin-resources --source-dir /plugins";
    let both = run(&both.split(' ').collect::<Vec<_>>());
    assert_eq!(both.plugins.files().len(), 1);
    assert!(both.serves_resources());
    let directory = both.sources.source_dir;
    assert_eq!(directory.as_deref(), Some(Path::new("/plugins")));
}

#[test]
fn says_how_sources_are_reached() {
    let dir = tempfile::tempdir().unwrap();
    let pem = "an authority\n-----BEGIN CERTIFICATE-----\n";
    let authority = file(dir.path(), "ca.pem", pem);
    let mirrors = "ghcr.io=a.example,quay.io=http://b.example/quay";
    let args = run(&[
        "--source-ca-file",
        &authority,
        "--source-mirror",
        mirrors,
        "--source-mirror",
        "ghcr.io=c.example",
    ]);
    let settings = args.sources.settings();
    assert_eq!(settings.certificates_pem, pem.as_bytes());
    assert_eq!(settings.mirrors["ghcr.io"], ["a.example", "c.example"]);
    assert_eq!(settings.mirrors["quay.io"], ["http://b.example/quay"]);
    let none = run(&["--source-mirror", ""]);
    assert!(none.sources.settings().mirrors.is_empty());

    let missing = rejection(&["run", "--source-ca-file", "/none"]);
    let text = "invalid value '/none' for '--source-ca-file <FILE>': failed to read the file: ";
    assert!(missing.contains(text), "{missing}");
    let empty = file(dir.path(), "empty.pem", "");
    let refused = rejection(&["run", "--source-ca-file", &empty]);
    let text = "empty.pem' for '--source-ca-file <FILE>': it contains no certificate: give the authorities as PEM";
    assert!(refused.contains(text), "{refused}");
    for text in ["ghcr.io", "=a", "a=", "ghcr.io/a=b", "a=b,c"] {
        let refused = rejection(&["run", "--source-mirror", text]);
        let text = "is not REGISTRY=MIRROR: write it as ghcr.io=mirror.example";
        assert!(refused.contains(text), "{refused}");
        assert!(refused.contains("--source-mirror"), "{refused}");
    }
    let alone = rejection(&["run", "--plugin", "a.wasm", "--source-ca-file", &authority]);
    let text = "--source-ca-file is for Plugin resources";
    assert!(alone.contains(text), "{alone}");
}

#[test]
fn takes_the_wasm_files_of_a_directory_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b.wasm", "a.wasm", "readme.md"] {
        file(dir.path(), name, "");
    }
    let args = run(&["--plugin-dir", dir.path().to_str().unwrap()]);
    let files = args.plugins.files();
    let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap()).collect();
    assert_eq!(names, ["a.wasm", "b.wasm"]);
}

#[test]
fn reads_the_configuration_of_plugins() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "a.yaml", "image: x\n");
    let settings = run(&["--plugin", "a.wasm", "--config", &format!("a={input}")]);
    assert_eq!(settings.plugins.configs()["a"]["image"], "x");
}

#[test]
fn reads_what_plugins_may_do() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), "a.yaml", "children: [{kind: Pod}]\n");
    let named = format!("a={input}");
    let settings = run(&["--plugin", "a.wasm", "--grants", &named]);
    let granted = settings.plugins.grants();
    assert_eq!(granted["a"]["children"][0]["kind"], "Pod");
    let other = file(dir.path(), "b.yaml", "{}");
    let second = format!("a={other}");
    let twice = [
        "run", "--plugin", "a", "--grants", &named, "--grants", &second,
    ];
    let text = format!("--grants names plugin a twice, with {input} and {other}: give one");
    assert!(rejection(&twice).contains(&text));
}

#[test]
fn rejects_what_it_does_not_understand() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let list = file(dir.path(), "list.yaml", "[1]\n");
    let broken = file(dir.path(), "broken.yaml", "a: [\n");
    let cases: &[(&[&str], &str)] = &[
        (
            &["dev", "--kubeconfig", "a", "--plugin", "b", "--", "c"],
            "cannot be used with",
        ),
        (
            &["run", "--plugin", "a", "--source-dir", "b"],
            "--source-dir is for Plugin resources",
        ),
        (&["run", "--plugin", "a", "--unknown"], "--unknown"),
        (&["run", "--workers", "1"], "not in 2..=1024"),
        (
            &["run", "--drain-timeout", "3601"],
            "give 0 to 3600 seconds",
        ),
        (&["run", "--guest-memory", "15"], "--guest-memory <MIB>"),
        (&["run", "--cache-size", "15"], "--cache-size <MIB>"),
        (
            &["run", "--host-namespace", "A"],
            "use at most 63 lower-case",
        ),
        (&["run", "--plugin", "a", "--config", "a"], "PLUGIN=FILE"),
        (&["run", "--plugin", "a", "--grants", "a"], "PLUGIN=FILE"),
        (
            &["run", "--plugin", "a", "--grants", "a=/none"],
            "'--grants <PLUGIN=FILE>': failed to read /none",
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
    check_rejections(cases);
}

#[test]
fn names_of_the_manifests_are_checked() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["manifests", "a", "--namespace", "Inn"],
            "invalid value 'Inn' for '--namespace <NAME>': use at most 63 lower-case",
        ),
        (
            &["manifests", "a", "b", "--print-grants"],
            "--print-grants prints the file of one plugin: give one plugin",
        ),
        (
            &["manifests", "a", "--name", "Inn"],
            "invalid value 'Inn' for '--name <NAME>': use at most 63 lower-case",
        ),
        (
            &["manifests", "a", "--account", "a=b"],
            "PLUGIN=NAMESPACE/NAME",
        ),
        (
            &["manifests", "a", "--account", "a=b/c", "--account", "a=d/e"],
            "--account names plugin a twice, with b/c and d/e: give one of them",
        ),
    ];
    check_rejections(cases);
}

#[test]
fn hosts_take_turns_unless_told_not_to() {
    let args = |arguments: &[&str]| {
        let fixed = "--plugin a --kubeconfig k --lease-identity a"
            .split(' ')
            .collect::<Vec<_>>();
        run(&[&*fixed, arguments].concat())
    };
    assert!(!args(&["--leader-elect=false"]).elects_leader());
    assert!(args(&["--leader-elect"]).elects_leader());
    let args = args(&[]);
    assert!(args.elects_leader());
    assert_eq!(LeaseArgs::default().times(), args.lease.times());
    assert_eq!(
        (&*args.lease_name(), &*args.lease.identity),
        ("innkeeper", "a")
    );
    let times = args.lease.times();
    let seconds = [times.duration, times.renew_deadline, times.retry].map(|time| time.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
}

#[test]
fn shards_need_leases() {
    let args = run(&["--shards", "4"]);
    assert_eq!(
        (args.lease.shards.get(), args.host_scope().shards.get()),
        (4, 4)
    );
    assert!(run(&[]).lease.shards.is_one());
    for (arguments, expected) in [
        (&["--shards", "0"][..], "from 1 to 64"),
        (&["--shards", "65"], "from 1 to 64"),
        (
            &["--shards", "2", "--leader-elect=false"],
            "omit --leader-elect=false",
        ),
    ] {
        let message = rejection(&[&["run"], arguments].concat());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn rejects_a_lease_that_leaves_the_holder_no_time_to_stop() {
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
    let settings = ConnectionArgs {
        kubeconfig: Some(PathBuf::from("/does/not/exist")),
        context: None,
    };
    let error = client_config(&settings).await.err().unwrap().to_string();
    assert_eq!(
        error,
        "failed to use the kubeconfig /does/not/exist (--kubeconfig): repair it, or give another by --kubeconfig or KUBECONFIG"
    );
}

#[tokio::test]
async fn an_authority_that_is_a_file_is_read_again_and_others_are_not() {
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
        let connection = ConnectionArgs {
            kubeconfig: Some(path),
            context: None,
        };
        let client = client_config(&connection).await.ok().unwrap();
        client.config.root_cert_file
    };
    let data = format!("certificate-authority-data: {DATA}");
    assert_eq!(read("").await, None);
    assert_eq!(read(&data).await, None);
    assert_eq!(
        read("certificate-authority: ca.crt").await,
        Some(directory.path().join("ca.crt"))
    );
    // As for kubectl, the text has priority over the file.
    assert_eq!(
        read(&format!("certificate-authority: ca.crt, {data}")).await,
        None
    );
}

#[test]
fn namespaces_are_taken_in_order_and_bad_ones_are_named() {
    assert_eq!(run(&["--plugin", "a.wasm"]).scope, ScopeArgs::default());
    let settings = run(&[
        "--plugin",
        "a.wasm",
        "--namespaces",
        "b,a-1",
        "--crds",
        "ignore",
    ]);
    let expected = ScopeArgs {
        namespaces: Some(vec!["a-1".to_owned(), "b".to_owned()]),
        crds: Definitions::Ignore,
    };
    assert_eq!(settings.scope, expected);
    let long = "x".repeat(64);
    for (input, part) in [
        ("", "it has an empty name: write it as a,b"),
        ("a,,b", "it has an empty name: write it as a,b"),
        ("a,B", "\"B\" is not a name: use at most 63 lower-case"),
        ("a b", "\"a b\" is not a name: use at most 63 lower-case"),
        ("-a", "\"-a\" is not a name"),
        ("a.b", "\"a.b\" is not a name"),
        (&long, "is not a name: use at most 63 lower-case"),
        ("a,b,a", "it has a twice: name each namespace once"),
    ] {
        let input = format!("--namespaces={input}");
        for command in [&["run", "--plugin"][..], &["manifests"]] {
            let text = rejection(&[command, &["a.wasm", &input]].concat());
            assert!(text.contains(part), "{command:?} {input}: {text}");
            assert!(text.contains("--namespaces"), "{text}");
        }
    }
}

#[test]
fn a_plugin_selector_is_read_as_kubectl_reads_one() {
    let settings = run(&["--plugin-selector", " team in (a, b),!old "]);
    let selector = settings.sources.selector;
    assert_eq!(selector.unwrap().to_string(), "team in (a,b),!old");
    for (input, part) in [
        ("", "it selects everything: omit the flag"),
        (
            "team in a",
            "'team in a' for '--plugin-selector <SELECTOR>': ",
        ),
    ] {
        let input = format!("--plugin-selector={input}");
        let text = rejection(&["run", &input]);
        assert!(text.contains(part), "{input}: {text}");
    }
    let text = rejection(&["run", "--plugin", "a.wasm", "--plugin-selector", "a=b"]);
    let unserved = "--plugin-selector is for Plugin resources";
    assert!(text.contains(unserved), "{text}");
}

#[test]
fn hosts_that_do_other_work_do_not_wait_for_each_other() {
    let name = |arguments: &[&str]| {
        let arguments = [&["--leader-elect"], arguments].concat();
        run(&arguments).lease_name()
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
    let input = ["--plugin-selector", "team=a", "--lease-name", "mine"];
    assert_eq!(name(&input), "mine");
}

#[test]
fn keys_and_digests_are_read_before_a_registry_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let public = file(dir.path(), "a.pub", P256_PUB);
    let private = file(dir.path(), "a.key", P256_KEY);
    let reference = "ghcr.io/plugins/pond:1";
    for (arguments, expected) in [
        (
            &["sign", reference, "--key", &public][..],
            "a.pub' for '--key <FILE>': this is not a private key",
        ),
        (
            &["pull", reference, "--key", &private],
            "a.key' for '--key <FILE>': this is not a public key",
        ),
        (
            &["verify", reference, "--key", "/none"],
            "'/none' for '--key <FILE>': failed to read the file",
        ),
        (&["verify", reference], "--key <FILE>"),
        (
            &["pull", reference, "--digest", "sha256:1"],
            "'sha256:1' for '--digest <DIGEST>': ",
        ),
        (
            &["push", "pond.wasm", reference, "--docker-config", "/none"],
            "'/none' for '--docker-config <FILE>': failed to read the file",
        ),
    ] {
        let message = rejection(arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
        for key in [P256_PUB, P256_KEY] {
            let content = key.lines().nth(1).unwrap();
            assert!(!message.contains(content), "{message}");
        }
    }
    let input = parse(&["sign", reference, "--key", &private]).unwrap();
    let content = P256_KEY.lines().nth(1).unwrap();
    assert!(!format!("{input:?}").contains(content), "{input:?}");
}

#[test]
fn times_may_have_a_unit() {
    for (input, expected) in [
        ("90", Duration::from_secs(90)),
        ("90s", Duration::from_secs(90)),
        ("15m", Duration::from_mins(15)),
        ("10h", Duration::from_hours(10)),
        ("2d", Duration::from_hours(48)),
    ] {
        let args = run(&["--plugin", "a", "--resync-period", input]);
        assert_eq!(args.plugins.resync_period, expected, "{input}");
    }
    for wrong in [
        "",
        "0",
        "h",
        "1w",
        "1.5h",
        "31d",
        "10hh",
        "-1",
        "99999999999999999999d",
    ] {
        let flag = format!("--resync-period={wrong}");
        let message = rejection(&["run", "--plugin", "a", &flag]);
        assert!(
            message.contains("give 1 to 2592000 seconds, also with a unit") || wrong.is_empty(),
            "{message}"
        );
    }
}

#[test]
fn the_admin_address_may_be_localhost() {
    let address = |text: &str| {
        run(&["--plugin", "a", "--admin-address", text])
            .admin
            .address
            .unwrap()
    };
    assert_eq!(address("localhost:8080").to_string(), "127.0.0.1:8080");
    assert_eq!(address("[::1]:80").to_string(), "[::1]:80");
    for wrong in ["localhost", "localhost:x", "example.com:80"] {
        let message = rejection(&["run", "--plugin", "a", "--admin-address", wrong]);
        assert!(message.contains("for example localhost:8080"), "{message}");
    }
}

#[test]
fn a_client_of_a_host_names_its_scheme_and_its_token() {
    const RECORD: [&str; 3] = ["record", "--parent", "demo/web"];

    let record = |more: &[&str]| match parse(&[&RECORD, more].concat()).unwrap().command {
        Command::Record(args) => args,
        other => panic!("{other:?}"),
    };
    for (input, url, shown) in [
        ("a:1", "http://a:1/x", "a:1"),
        ("http://[::1]:1/", "http://[::1]:1/x", "[::1]:1"),
        (
            "https://a.example:1/",
            "https://a.example:1/x",
            "https://a.example:1",
        ),
    ] {
        let address = record(&["--admin-address", input]).admin_address;
        assert_eq!((&*address.url("/x"), &*address.to_string()), (url, shown));
    }
    let dir = tempfile::tempdir().unwrap();
    let token = file(dir.path(), "token", "abc\n");
    let secure = ["--admin-address", "https://a:1", "--token-file", &token];
    let header = record(&secure).client.token_file.unwrap();
    assert_eq!(header, "Bearer abc");
    assert!(!format!("{header:?}").contains("abc"));
    let empty = file(dir.path(), "empty", "\n");
    for (flags, expected) in [
        (&["--admin-address", "https://a"][..], "https://HOST:PORT"),
        (&["--admin-address", "ftp://a:1"], "https://HOST:PORT"),
        (&["--insecure-skip-tls-verify"], "--admin-address"),
        (
            &["--admin-address", "https://a:1", "--token-file", &empty],
            "it contains no token",
        ),
        (
            &["--admin-address", "a:1", "--token-file", &token],
            "give --admin-address https://a:1",
        ),
    ] {
        check_rejections(&[(&[&RECORD, flags].concat(), expected)]);
    }
}

#[test]
fn debug_endpoints_are_not_open_to_the_network() {
    let debug = ["run", "--plugin", "a", "--debug-endpoints"];
    for local in ["localhost:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        run(&[&debug[1..], &["--admin-address", local]].concat());
    }
    let open = [&debug[..], &["--admin-address", "0.0.0.0:80"]].concat();
    let message = rejection(&open);
    assert!(
        message.contains("add --admin-tls, or listen on localhost"),
        "{message}"
    );
    run(&[&open[1..], &["--admin-tls"]].concat());
    let alone = ["--admin-tls", "--admin-tls-cert", "a.crt"];
    let message = rejection(&[&open[..], &alone].concat());
    assert!(message.contains("--admin-tls-key"), "{message}");
}

#[test]
fn the_parent_of_render_is_an_argument_or_a_flag() {
    let render =
        |more: &[&str]| parse(&[&["render", "--plugin", "oci://r.example/a:1"], more].concat());
    let Command::Render(args) = render(&["a.yaml"]).unwrap().command else {
        panic!("it is another command");
    };
    assert_eq!(args.parent_file.as_deref(), Some(Path::new("a.yaml")));
    assert_eq!(args.plugin, Inspected::Artifact("r.example/a:1".to_owned()));
    assert!(render(&["--parent", "a.yaml"]).is_ok());
    assert!(render(&["a.yaml", "--parent", "b.yaml"]).is_err());
    assert!(render(&[]).is_err());
}

#[test]
fn the_candidate_of_plan_is_an_argument_or_a_flag() {
    let input = Inspected::Artifact("r.example/a:1".to_owned());
    let candidate = |arguments: &[&str]| {
        let parsed = parse(&[&["plan"], arguments].concat())?;
        let Command::Plan(args) = parsed.command else {
            panic!("it is another command");
        };
        Ok::<_, Error>(args.fleet.plugin.or(args.fleet.plugin_file))
    };
    let by_flag = ["--plugin", "oci://r.example/a:1"];
    assert_eq!(candidate(&by_flag).unwrap().as_ref(), Some(&input));
    let by_argument = ["oci://r.example/a:1"];
    assert_eq!(candidate(&by_argument).unwrap().as_ref(), Some(&input));
    assert!(candidate(&[by_argument[0], by_flag[0], by_flag[1]]).is_err());
    assert!(candidate(&[]).is_err());
}

/// The default is empty where `HOME` is not set, as in a Pod without a home directory.
#[test]
fn a_missing_cache_directory_is_reported_with_a_remedy() {
    let message = rejection(&["run", "--cache-dir", ""]);
    assert!(
        message.contains("HOME is not set: name a directory"),
        "{message}"
    );
}

/// The help of a command, on one line.
fn help(command: &str) -> String {
    rejection(&[command, "--help"])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// `dev` requires a cluster, so that it applies no examples to whatever cluster is the current one.
#[test]
fn the_help_promises_a_usual_kubeconfig_only_where_there_is_one() {
    let usual = "[default: $KUBECONFIG, then ~/.kube/config";
    for command in ["run", "status"] {
        assert!(help(command).contains(usual), "{command}");
        parse(&[command]).unwrap();
    }
    assert!(!help("dev").contains(usual), "{}", help("dev"));
    assert!(help("dev").contains("--kubeconfig <FILE>"));
}

#[test]
fn dev_without_plugin_files_is_for_a_crate() {
    for (arguments, expected) in [
        (&["dev", "--kubeconfig", "k"][..], Some(".")),
        (&["dev", "--context", "c", "pond"], Some("pond")),
        (&["dev", "--controlplane", "c", "--plugin", "a"], None),
    ] {
        let Command::Dev(args) = parse(arguments).unwrap().command else {
            panic!("{arguments:?}");
        };
        assert_eq!(args.project(), expected.map(Path::new), "{arguments:?}");
        let host = args.host();
        assert_eq!(host.serves_resources(), expected.is_some());
        assert_eq!(host.sources.source_dir.is_some(), expected.is_some());
    }
}

#[test]
fn only_a_cluster_of_dev_itself_grants_all_requests() {
    let dev = |cluster: &[&str]| match parse(&[&["dev", "--plugin", "a"], cluster].concat()) {
        Ok(Cli {
            command: Command::Dev(args),
            ..
        }) => args.host().plugins.grants_requests,
        other => panic!("{other:?}"),
    };
    assert!(dev(&["--controlplane", "c"]));
    assert!(!dev(&["--kubeconfig", "k"]));
    assert!(!run(&["--plugin", "a"]).plugins.grants_requests);
}

#[test]
fn examples_of_dev_go_to_its_first_namespace() {
    let of = |flags: &[&str]| match parse(
        &[&["dev", "--plugin", "a", "--kubeconfig", "k"], flags].concat(),
    ) {
        Ok(Cli {
            command: Command::Dev(args),
            ..
        }) => {
            let host = args.host();
            assert_eq!(host.scope.namespaces, args.scope.namespaces);
            args.examples_namespace().to_owned()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&[]), "default");
    assert_eq!(of(&["--namespaces", "a,b"]), "a");
}

/// Two flattened groups with a field of the same name would share its value, and release builds of clap do not notice.
#[test]
fn no_two_flags_of_a_command_have_one_id() {
    for command in <Cli as clap::CommandFactory>::command().get_subcommands() {
        let mut known = std::collections::BTreeSet::new();
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str().to_owned();
            assert!(known.insert(id), "{} {argument}", command.get_name());
        }
    }
}

#[test]
fn every_help_lists_the_same_exit_codes() {
    for command in <Cli as clap::CommandFactory>::command().get_subcommands() {
        if command.is_hide_set() {
            continue;
        }
        let command = command.get_name();
        let help = help(command);
        let codes = "Exit codes: 0 success 1 failure 2 the command line, the environment, or a file that they name cannot be used";
        assert!(help.contains(codes), "{command}: {help}");
    }
}

/// Files that the examples name and that are read with the command line.
const EXAMPLE_FILES: [(&str, &str); 4] = [
    ("cosign.key", P256_KEY),
    ("cosign.pub", P256_PUB),
    ("debugger.token", "abc"),
    ("grants.yaml", "{}"),
];

#[test]
fn every_command_has_examples_that_parse() {
    let dir = tempfile::tempdir().unwrap();
    let files = EXAMPLE_FILES.map(|(name, text)| (name, file(dir.path(), name, text)));
    for command in <Cli as clap::CommandFactory>::command().get_subcommands() {
        if command.is_hide_set() {
            continue;
        }
        let name = command.get_name();
        let help = command.get_after_help().unwrap().to_string();
        let prefix = format!("  innkeeper {name}");
        let examples: Vec<_> = help
            .lines()
            .filter(|line| line.starts_with(&prefix))
            .collect();
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            let with_paths = files.iter().fold(example.to_owned(), |line, (name, path)| {
                line.replace(name, path)
            });
            let parsed = read(with_paths.split_whitespace().map(OsString::from));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.unwrap_err());
        }
    }
}
