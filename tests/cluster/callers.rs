//! Callers on a host with `--admin-tls`: the API server authenticates and authorizes them.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use innkeeper_tests::{
    ControlPlane, Host, HostOptions,
    admin::{SecureAnswer, address, ask, ask_secure, get_secure_from},
    eventually, helm,
    pem::pem,
    process::{is_full, path_from_env},
};
use serde_json::{Value, json};

use crate::{
    admin,
    plugins::replace_file,
    recordings::{check, record},
    stage::{Stage, is_applied, wait_logged},
    suite::Target,
};

/// Namespace and name of the scraper's account.
const SCRAPER: (&str, &str) = ("default", "prometheus");

/// Namespace and name of the account that may use the debug endpoints.
const DEBUGGER: (&str, &str) = ("default", "debugger");

const PARENT: Target<'static> = ("cache.example.com/v1", "Memcached", "web");

/// Returns a service account's token.
pub(crate) fn token(plane: &ControlPlane, (namespace, name): (&str, &str)) -> String {
    let output = Command::new(path_from_env("INNKEEPER_CONTROLPLANE").unwrap())
        .args(["kubectl", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .args(["create", "token", name, "--namespace", namespace])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes a new certificate and key; returns the certificate.
fn write_certificate(certificate: &Path, key: &Path) -> Vec<u8> {
    let certified_key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // In this order, the host may read a certificate before the matching key, as in any directory
    // that is not a mounted Secret.
    replace_file(
        certificate,
        pem("CERTIFICATE", certified_key.cert.der()).as_bytes(),
    );
    let private = pem("PRIVATE KEY", &certified_key.signing_key.serialize_der());
    replace_file(key, private.as_bytes());
    certified_key.cert.der().to_vec()
}

/// A host with the user's certificate, and the host's address.
struct Site {
    host: Host,
    stage: Stage,
    address: String,
    certificate: Vec<u8>,
}

impl Site {
    fn new() -> Self {
        let stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
        let [file, key] = Self::files(&stage);
        let certificate = write_certificate(Path::new(&file), Path::new(&key));
        let tls = [
            "--admin-tls",
            "--admin-tls-cert",
            &file,
            "--admin-tls-key",
            &key,
            "--debug-endpoints",
        ];
        let host = admin::host(&stage, &tls);
        let address = address(&host);
        Self {
            host,
            stage,
            address,
            certificate,
        }
    }

    /// Paths for certificate and key.
    fn files(stage: &Stage) -> [String; 2] {
        let directory = stage.plane.directory();
        ["tls.crt", "tls.key"].map(|name| directory.join(name).to_str().unwrap().to_owned())
    }

    fn ask(&self, path: &str, token: Option<&str>) -> SecureAnswer {
        ask_secure(&self.address, "GET", path, token).unwrap()
    }

    fn get_from(&self, source: Ipv4Addr, path: &str, token: &str) -> SecureAnswer {
        get_secure_from(source, &self.address, path, token).unwrap()
    }

    /// Waits until an account may get a path. Sends the requests from another address, because they
    /// may use up that address's share.
    #[track_caller]
    fn wait_permitted(&self, path: &str, token: &str) {
        eventually(&format!("the account may get {path}"), || {
            match self.get_from(Ipv4Addr::new(127, 0, 1, 1), path, token) {
                answer if answer.status == 200 => Ok(()),
                answer => Err(format!("{answer:?}")),
            }
        });
    }

    /// Creates the account and role from the page about debugging.
    fn make_debugger(&self) {
        let (namespace, name) = DEBUGGER;
        let group = "rbac.authorization.k8s.io";
        let api_version = format!("{group}/v1");
        let metadata = json!({"name": name});
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        for object in [
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace},
            }),
            json!({
                "apiVersion": api_version, "kind": "ClusterRole", "metadata": metadata,
                "rules": [{"nonResourceURLs": ["/debug/*"], "verbs": ["get", "put", "post"]}],
            }),
            json!({
                "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [account],
            }),
        ] {
            self.stage.plane.user().apply(&object).unwrap();
        }
    }

    /// Creates the scraper's account, and binds the chart's roles to it.
    fn make_scraper(&self, is_bound: bool) {
        let (namespace, name) = SCRAPER;
        let user = self.stage.plane.user();
        if !is_bound {
            let account = json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace},
            });
            user.apply(&account).unwrap();
            return;
        }
        let readers =
            format!("metrics.readers[0].name={name},metrics.readers[0].namespace={namespace}");
        for object in helm::objects(&["--set", &readers]).unwrap() {
            if object["metadata"]["name"] == "innkeeper-metrics-reader" {
                user.apply(&object).unwrap();
            }
        }
    }
}

/// A scrape needs a token that the API server accepts, for an account that may get the path; probes
/// need none. The host follows changed certificate files. Neither unknown callers nor an
/// unavailable API server delay the probes.
#[test]
fn metrics_are_for_callers_whom_the_api_server_permits_to_get_them() {
    let site = Site::new();
    let plane = &site.stage.plane;
    assert_eq!(site.ask("/livez", None).status, 200);
    assert_eq!(site.ask("/metrics", None).status, 401);
    assert_eq!(site.ask("/metrics", Some("forged")).status, 401);
    assert!(
        ask(&site.address, "GET", "/livez", "").is_err(),
        "plain HTTP"
    );

    site.make_scraper(false);
    let scraper = token(plane, SCRAPER);
    let refused = site.ask("/metrics", Some(&scraper));
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("ClusterRole"), "{refused:?}");
    site.make_scraper(true);
    site.wait_permitted("/metrics", &scraper);
    let metrics = site.ask("/metrics", Some(&scraper));
    assert!(metrics.body.ends_with("# EOF\n"), "{metrics:?}");
    // The role grants only this path and verb.
    for path in ["/debug/state", "/debug/plans/memcached"] {
        assert_eq!(site.ask(path, Some(&scraper)).status, 403, "{path}");
    }
    let put = ask_secure(&site.address, "PUT", "/debug/log", Some(&scraper));
    assert_eq!(put.unwrap().status, 403);

    check_commands(&site, &scraper);
    check_rotation(&site);
    check_review_limit(&site, &scraper);

    plane.control(&["pause", "apiserver"]).unwrap();
    let other = format!("{scraper}x");
    // The API server may still answer one review. This address has used up all reviews; another one
    // has a separate share.
    let another = Ipv4Addr::new(127, 0, 0, 2);
    let waited = eventually("the API server does not answer", || {
        let begin = Instant::now();
        match site.get_from(another, "/metrics", &other) {
            answer if answer.status == 503 => Ok(begin.elapsed()),
            answer => Err(format!("{answer:?}")),
        }
    });
    // Prometheus's default scrape timeout is 10 s.
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(site.ask("/livez", None).status, 200);
    plane.control(&["resume", "apiserver"]).unwrap();
    Stage::stop(site.host);
}

/// Flags for a client that connects to a host, with files in the harness directory.
struct Client {
    named: String,
    numeric: String,
    trusted: String,
    directory: PathBuf,
}

impl Client {
    fn new(site: &Site) -> Self {
        let [authority, _] = Site::files(&site.stage);
        let port = site.address.rsplit(':').next().unwrap();
        Self {
            named: format!("https://localhost:{port}"),
            numeric: format!("https://{}", site.address),
            trusted: format!("--ca-file {authority}"),
            directory: site.stage.plane.directory().to_owned(),
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Checks that `record` exits with this code and message.
    #[track_caller]
    fn check_refused(&self, address: &str, flags: &str, code: i32, message: &str) {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let to = self.directory.to_str().unwrap();
        let order = ["--parent", "demo/web", "--to", to];
        check(
            &record(address, &[&order[..], &flags].concat()),
            code,
            message,
        );
    }
}

/// Checks that `status` and `record` verify the host's certificate and send a token that the API
/// server authorizes.
#[track_caller]
fn check_commands(site: &Site, scraper: &str) {
    let client = Client::new(site);
    let Client {
        named,
        numeric,
        trusted,
        ..
    } = &client;
    site.make_debugger();
    let able = format!("{}\n", token(&site.stage.plane, DEBUGGER));
    let able = client.file("able", &able);
    let unable = client.file("unable", scraper);
    let forged = client.file("forged", "forged");
    let other = client.file("other.crt", "");
    write_certificate(Path::new(&other), &client.directory.join("other.key"));
    for (address, flags, code, message) in [
        (named, String::new(), 1, "failed to verify the certificate"),
        (
            named,
            format!("--ca-file {other} --token-file {able}"),
            1,
            "give its authority with --ca-file",
        ),
        (numeric, trusted.clone(), 1, "not valid for name"),
        (
            named,
            trusted.clone(),
            1,
            "requires a token: give --token-file",
        ),
        (
            named,
            format!("{trusted} --token-file {forged}"),
            1,
            "refuses: the API server rejects the token",
        ),
        (
            named,
            format!("{trusted} --token-file {unable}"),
            1,
            "refuses: the account may not ",
        ),
        (
            &site.address,
            String::new(),
            1,
            "a host with --admin-tls needs https://HOST:PORT",
        ),
        (
            &site.address,
            trusted.clone(),
            2,
            "give --admin-address https://",
        ),
        (
            numeric,
            format!("--token-file {other}"),
            2,
            "it contains no token",
        ),
    ] {
        client.check_refused(address, &flags, code, message);
    }
    check_recording(site, &client, &able);
}

/// Checks that `record` succeeds with the debugger's token.
#[track_caller]
fn check_recording(site: &Site, client: &Client, able: &str) {
    let Client {
        named,
        numeric,
        trusted,
        directory,
    } = client;
    site.stage
        .wait_served(&site.host, &["memcacheds.cache.example.com"]);
    let namespace = site.stage.namespace("asked");
    let (api_version, kind, name) = PARENT;
    let parent = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"size": 1},
    });
    site.stage.apply(&namespace, &parent);
    site.stage.wait(&site.host, &namespace, PARENT, is_applied);
    let parent = format!("{namespace}/{name}");
    let to = directory.join("taken");
    let order = ["--parent", &parent, "--to", to.to_str().unwrap()];
    let insecure = "--insecure-skip-tls-verify";
    for (address, trust, warns) in [(named, &**trusted, false), (numeric, insecure, true)] {
        let flags = format!("{trust} --token-file {able}");
        let flags: Vec<&str> = flags.split(' ').collect();
        let taken = eventually("the debugger may record", || {
            let output = record(address, &[&order[..], &flags].concat());
            if output.status.success() {
                return Ok(output);
            }
            Err(format!("{output:?}"))
        });
        check(&taken, 0, "waiting for 1 recordings");
        let errors = String::from_utf8_lossy(&taken.stderr);
        assert_eq!(errors.contains("warning: "), warns, "{errors}");
    }
}

/// Checks that the host serves the certificate in the files, or the last good one if they are
/// missing.
#[track_caller]
fn check_rotation(site: &Site) {
    let shown = || site.ask("/livez", None).certificate;
    assert_eq!(shown(), site.certificate);
    let [file, key] = Site::files(&site.stage);
    let renewed = write_certificate(Path::new(&file), Path::new(&key));
    assert_ne!(renewed, site.certificate);
    eventually("the host shows the new certificate", || {
        if shown() == renewed {
            return Ok(());
        }
        Err(site.host.log().unwrap())
    });
    replace_file(Path::new(&key), b"broken");
    let goal = "the host reports the broken key";
    wait_logged(&site.host, goal, "tls.key: it must contain a private key");
    assert_eq!(shown(), renewed);
}

/// Checks that unknown tokens cause few reviews on the API server, and known ones none.
#[track_caller]
fn check_review_limit(site: &Site, scraper: &str) {
    let audit = site.stage.plane.audit();
    let mark = audit.mark().unwrap();
    let begin = Instant::now();
    let mut refused = 0;
    let source = Ipv4Addr::new(127, 0, 0, 3);
    for number in 0..200 {
        let answer = site.get_from(source, "/metrics", &format!("{scraper}{number}"));
        assert!([401, 429].contains(&answer.status), "{answer:?}");
        refused += usize::from(answer.status == 429);
    }
    assert_eq!(site.ask("/metrics", Some(scraper)).status, 200);
    assert_eq!(site.ask("/livez", None).status, 200);
    // A burst of 20, then one every 15 seconds.
    let allowed = 21 + usize::try_from(begin.elapsed().as_secs() / 15).unwrap();
    let reviews: Vec<_> = audit
        .all_requests_since(mark)
        .unwrap()
        .into_iter()
        .filter(|request| request.resource.starts_with("tokenreviews"))
        .collect();
    assert!(!reviews.is_empty());
    assert!(reviews.len() <= allowed, "{} of {allowed}", reviews.len());
    assert!(
        refused + reviews.len() >= 200,
        "{refused} {}",
        reviews.len()
    );
    let texts: Vec<Value> = reviews.iter().map(|review| json!(review.code)).collect();
    assert!(texts.iter().all(|code| *code == 201), "{texts:?}");
}

/// Sends 100 requests per second with unknown tokens, from [`ask_secure`]'s address; returns how
/// many.
fn flood(address: &str, time: Duration) -> u32 {
    // Several, because each thread waits for the answer.
    const THREADS: u32 = 4;
    const INTERVAL: Duration = Duration::from_millis(10).saturating_mul(THREADS);

    let sent = AtomicU32::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut next = begin;
                while begin.elapsed() < time {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    let token = format!("unknown-{number}");
                    let answer = ask_secure(address, "GET", "/metrics", Some(&token)).unwrap();
                    assert!([401, 429].contains(&answer.status), "{answer:?}");
                    next += INTERVAL;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            });
        }
    });
    sent.into_inner()
}

/// A flood with unknown tokens delays neither accepted tokens, whose permission is cached for a
/// minute, nor new tokens from other addresses. The accepted tokens come from the flooding address.
#[test]
fn a_flood_of_unknown_tokens_locks_out_no_scraper() {
    let time = Duration::from_secs(if is_full() { 120 } else { 10 });
    let site = Site::new();
    site.make_scraper(false);
    site.make_scraper(true);
    site.make_debugger();
    let [scraper, debugger] = [SCRAPER, DEBUGGER].map(|account| token(&site.stage.plane, account));
    site.wait_permitted("/metrics", &scraper);
    site.wait_permitted("/debug/state", &debugger);
    let newcomers: Vec<String> = (0..3).map(|_| token(&site.stage.plane, SCRAPER)).collect();

    thread::scope(|scope| {
        let address = &*site.address;
        let flooding = scope.spawn(move || flood(address, time));
        let begin = Instant::now();
        let mut refused = Vec::new();
        let mut check = |what: &str, answer: SecureAnswer, expected| {
            if answer.status != expected {
                refused.push(format!("{what} after {:?}: {answer:?}", begin.elapsed()));
            }
        };
        for number in 0..10 {
            let from_flood = |path: &str, token: &str| site.ask(path, Some(token));
            check("scrape", from_flood("/metrics", &scraper), 200);
            // Not cached: nobody requested this path before, and no such Plugin exists.
            let path = format!("/debug/plans/unknown-{number}");
            check("another path", from_flood(&path, &debugger), 404);
            if let Some(new) = newcomers.get(usize::from(number)) {
                let source = Ipv4Addr::new(127, 0, 2, number + 1);
                check("first scrape", site.get_from(source, "/metrics", new), 200);
            }
            let next = time / 11 * (u32::from(number) + 1);
            thread::sleep(next.saturating_sub(begin.elapsed()));
        }
        let sent = flooding.join().unwrap();
        assert!(refused.is_empty(), "{refused:#?}");
        // A slow machine sends fewer requests, but still far more than the host sends reviews.
        assert!(u64::from(sent) > 30 * time.as_secs(), "{sent}");
    });
    assert_eq!(site.ask("/livez", None).status, 200);
    Stage::stop(site.host);
}
