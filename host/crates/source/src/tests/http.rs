//! Plugins on web servers.

use std::time::Duration;

use super::{
    server::{Manner, Reply, Server},
    *,
};
use crate::{Credentials, DockerConfig, Http, Oci, transport::check_private};

fn at(url: String) -> Source {
    Source::Http(Http {
        url,
        credentials: None,
    })
}

fn with_password(url: String) -> Source {
    Source::Http(Http {
        url,
        credentials: Some(Credentials::Basic {
            user: "user".to_owned(),
            password: "pass".into(),
        }),
    })
}

/// Settings that have no patience.
fn impatient() -> Settings {
    Settings {
        silence: Duration::from_millis(200),
        ..local()
    }
}

async fn anything(settings: Settings, source: &Source) -> Result<Fetched, Error> {
    fetch(settings, source, &Expectation::default()).await
}

#[tokio::test]
async fn a_file_is_fetched_with_its_credentials() {
    let server = Server::start(|request| {
        let allowed = ["Basic dXNlcjpwYXNz", "Bearer token"];
        match request.headers.get("authorization") {
            Some(header) if allowed.contains(&header.as_str()) => Reply::new(200, PLUGIN),
            _ => Reply::new(401, "who are\u{7} you?\nreally"),
        }
    })
    .await;
    let url = format!("{}/pond.wasm?key=hunter2", server.origin);
    let token = Source::Http(Http {
        url: url.clone(),
        credentials: Some(Credentials::Bearer("token\n".into())),
    });
    for source in [with_password(url.clone()), token] {
        let fetched = fetch(local(), &source, &expect_digest(PLUGIN))
            .await
            .unwrap();
        assert_eq!(fetched.bytes, PLUGIN);
    }
    let texts = ["/pond.wasm", "answered 401", "name a Secret"];
    let shown = check_refused(
        anything(local(), &at(url)).await,
        PluginReason::Denied,
        Retry::Backoff,
        &texts,
    );
    // The server chose the body, so it is not shown.
    for hidden in ["hunter2", "who are", "really"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    let request = &server.requests()[0];
    assert_eq!(request.headers["accept-encoding"], "identity");
    assert_eq!(request.query["key"], "hunter2");
}

#[tokio::test]
async fn credentials_are_never_sent_to_another_server() {
    let other = Server::start(|request| match request.path.as_str() {
        "/pond.wasm" => Reply::new(200, PLUGIN),
        _ => Reply::new(500, ""),
    })
    .await;
    let target = other.origin.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        "/here" => Reply::redirect("/there"),
        "/there" => Reply::redirect(format!("{target}/pond.wasm")),
        _ => Reply::new(500, ""),
    })
    .await;
    let source = with_password(format!("{}/here", server.origin));
    let fetched = anything(local(), &source).await.unwrap();
    assert_eq!(fetched.bytes, PLUGIN);
    let signed_in = |server: &Server| -> Vec<bool> {
        let requests = server.requests();
        requests
            .iter()
            .map(|request| request.headers.contains_key("authorization"))
            .collect()
    };
    assert_eq!(signed_in(&server), [true, true]);
    assert_eq!(signed_in(&other), [false]);
}

#[tokio::test]
async fn credentials_are_never_sent_over_plain_http() {
    // The proxy gets every request that leaves this process.
    let proxy = Server::start(|request| {
        let challenge = "Basic realm=\"test\"";
        if request.headers.contains_key("authorization") {
            Reply::new(200, PLUGIN)
        } else {
            Reply::new(401, "").header("www-authenticate", challenge)
        }
    })
    .await;
    let mut settings = local();
    settings.proxies.http = Some(proxy.origin.clone());
    let registry = json!({"username": "user", "password": "pass"});
    let config = json!({"auths": {"registry.test": registry}}).to_string();
    let artifact = Source::Oci(Oci {
        reference: "registry.test/plugins/pond:1".parse().unwrap(),
        docker_config: Some(DockerConfig::from_json(config.as_bytes()).unwrap()),
        insecure: true,
    });
    let file = with_password("http://plugins.test/pond.wasm".to_owned());
    for source in [file, artifact] {
        check_refused(
            anything(settings.clone(), &source).await,
            PluginReason::SourceInvalid,
            Retry::OnChange,
            &["credentials are sent only over https"],
        );
    }
    let requests = proxy.requests();
    // A registry is requests without credentials first.
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].headers.contains_key("authorization"));
    for (address, is_private) in [
        ("https://plugins.test/", true),
        ("http://127.0.0.1:8080/", true),
        ("http://[::1]/", true),
        ("http://localhost/", true),
        ("http://plugins.test/", false),
        ("http://localhost.test/", false),
        ("http://10.0.0.1/", false),
    ] {
        let url = address.parse().unwrap();
        assert_eq!(check_private(&url).is_ok(), is_private, "{address}");
    }
}

#[tokio::test]
async fn credentials_do_not_come_back_with_a_redirect() {
    let (sender, receiver) = std::sync::mpsc::channel::<String>();
    let back = parking_lot::Mutex::new(receiver);
    let other = Server::start(move |_| Reply::redirect(back.lock().recv().unwrap())).await;
    let target = other.origin.clone();
    let server = Server::start(move |request| match request.path.as_str() {
        "/pond.wasm" => Reply::redirect(target.clone()),
        _ => Reply::new(200, PLUGIN),
    })
    .await;
    sender
        .send(format!("{}/delete-everything", server.origin))
        .unwrap();
    let source = with_password(format!("{}/pond.wasm", server.origin));
    anything(local(), &source).await.unwrap();
    assert!(!server.requests()[1].headers.contains_key("authorization"));
}

#[tokio::test]
async fn redirects_are_bounded() {
    let server = Server::start(|request| Reply::redirect(format!("{}x", request.path))).await;
    check_refused(
        anything(local(), &at(format!("{}/x", server.origin))).await,
        PluginReason::AddressRefused,
        Retry::Backoff,
        &["too many"],
    );
    assert_eq!(server.requests().len(), 6);
    for (target, reason, text) in [
        (
            "file:///etc/passwd",
            PluginReason::SourceInvalid,
            "write it as https",
        ),
        ("http://[", PluginReason::AddressRefused, "not an address"),
        (
            "http://user:pass@127.0.0.1/",
            PluginReason::SourceInvalid,
            "belong into a Secret",
        ),
    ] {
        let server = Server::start(move |_| Reply::redirect(target)).await;
        let source = at(format!("{}/x", server.origin));
        let error = anything(local(), &source).await.unwrap_err();
        let message = error_chain(&error).to_string();
        assert_eq!(error.reason(), reason, "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test]
async fn a_redirect_does_not_leave_tls() {
    let server = Server::start_tls(|_| Reply::redirect("http://127.0.0.1/pond.wasm")).await;
    let settings = Settings {
        certificates_pem: include_bytes!("fixtures/ca.pem").to_vec(),
        ..local()
    };
    check_refused(
        anything(settings, &at(format!("{}/x", server.origin))).await,
        PluginReason::AddressRefused,
        Retry::Backoff,
        &["a connection without encryption"],
    );
}

#[tokio::test]
async fn only_known_authorities_are_trusted() {
    let server = Server::start_tls(|_| Reply::new(200, PLUGIN)).await;
    let source = at(format!("{}/pond.wasm", server.origin));
    check_refused(
        anything(local(), &source).await,
        PluginReason::Untrusted,
        Retry::Backoff,
        &["is not trusted", "--source-ca-file", "UnknownIssuer"],
    );
    let settings = Settings {
        certificates_pem: include_bytes!("fixtures/ca.pem").to_vec(),
        ..local()
    };
    assert_eq!(anything(settings, &source).await.unwrap().bytes, PLUGIN);
}

#[tokio::test]
async fn local_addresses_are_refused_however_they_are_written() {
    let server = Server::start(|_| Reply::new(200, PLUGIN)).await;
    let port = server.host().rsplit_once(':').unwrap().1;
    let redirect = Server::start({
        let origin = server.origin.clone();
        move |_| Reply::redirect(origin.clone())
    })
    .await;
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        // Only the resolver knows where this one is.
        "localhost",
    ] {
        let source = at(format!("http://{host}:{port}/pond.wasm"));
        check_refused(
            anything(Settings::default(), &source).await,
            PluginReason::AddressRefused,
            Retry::Backoff,
            &["not a public address"],
        );
    }
    assert!(server.requests().is_empty());

    // The proxy setting lets the first server through as if it were public; the redirect is checked as well.
    let mut settings = Settings::default();
    settings.proxies.http = Some(redirect.origin.clone());
    let source = at("http://plugins.test/pond.wasm".to_owned());
    check_refused(
        anything(settings, &source).await,
        PluginReason::AddressRefused,
        Retry::Backoff,
        &["not a public address"],
    );
    assert_eq!((server.requests().len(), redirect.requests().len()), (0, 1));
}

#[tokio::test]
async fn a_proxy_is_used_and_is_no_source() {
    let proxy = Server::start(|request| match request.path.as_str() {
        "http://plugins.test/pond.wasm" => Reply::new(200, PLUGIN),
        _ => Reply::new(500, ""),
    })
    .await;
    let mut settings = Settings::default();
    let port = proxy.host().rsplit_once(':').unwrap().1;
    settings.proxies.http = Some(format!("http://localhost:{port}"));
    settings.proxies.no_proxy = Some("direct.test".to_owned());
    let source = at("http://plugins.test/pond.wasm".to_owned());
    assert_eq!(
        anything(settings.clone(), &source).await.unwrap().bytes,
        PLUGIN
    );
    check_refused(
        anything(settings, &at(format!("http://localhost:{port}/pond.wasm"))).await,
        PluginReason::SourceInvalid,
        Retry::OnChange,
        &["this is the proxy"],
    );
}

#[tokio::test]
async fn a_proxy_that_is_down_is_named() {
    let mut settings = local();
    // No process listens on loopback's first port.
    let nobody = Some("http://127.0.0.1:1".to_owned());
    (settings.proxies.https, settings.proxies.http) = (nobody.clone(), nobody);
    settings.proxies.no_proxy = Some("127.0.0.1".to_owned());
    for (url, name) in [
        ("https://plugins.test/pond.wasm", "HTTPS_PROXY"),
        ("http://plugins.test/pond.wasm", "HTTP_PROXY"),
    ] {
        let result = anything(settings.clone(), &at(url.to_owned())).await;
        let text = format!("/pond.wasm, through the proxy of {name} unless NO_PROXY names");
        check_refused(result, PluginReason::Unreachable, Retry::Backoff, &[&text]);
    }
    // A host in NO_PROXY is reached without the proxy.
    let server = Server::start(|_| Reply::new(200, PLUGIN)).await;
    let source = at(format!("{}/pond.wasm", server.origin));
    assert_eq!(anything(settings, &source).await.unwrap().bytes, PLUGIN);
}

#[tokio::test]
async fn addresses_that_are_none_are_refused() {
    for (url, text) in [
        ("pond.wasm", "write it as https"),
        ("file:///etc/passwd", "write it as https"),
        ("ftp://host/a", "write it as https"),
        ("https://user:hunter2@127.0.0.1/a", "belong into a Secret"),
        ("https:///", "write it as https"),
    ] {
        let shown = check_refused(
            anything(local(), &at(url.to_owned())).await,
            PluginReason::SourceInvalid,
            Retry::OnChange,
            &[text],
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test]
async fn an_oversized_answer_is_not_read() {
    let settings = || Settings {
        bytes_max: 1000,
        ..local()
    };
    for reply in [
        Reply::new(200, "x").manner(Manner::Announced(1 << 30)),
        Reply::new(200, vec![0_u8; 100_000]).manner(Manner::Chunked),
    ] {
        let server = Server::start(move |_| reply.clone()).await;
        check_refused(
            anything(settings(), &at(format!("{}/x", server.origin))).await,
            PluginReason::TooLarge,
            Retry::OnChange,
            &["1000 bytes"],
        );
    }
    let server = Server::start(|_| Reply::new(200, vec![0_u8; 1000])).await;
    let fetched = anything(settings(), &at(format!("{}/x", server.origin))).await;
    assert_eq!(fetched.unwrap().bytes.len(), 1000);
}

#[tokio::test]
async fn a_slow_server_is_given_up() {
    let rate = Settings {
        rate_bytes_min: 1000,
        ..impatient()
    };
    let drops =
        Reply::new(200, vec![0_u8; 10_000]).manner(Manner::Drops(Duration::from_millis(20)));
    let total = Settings {
        total: Duration::from_millis(200),
        ..local()
    };
    for (settings, reply, text) in [
        (rate, drops.clone(), "sends less than 1000 bytes per second"),
        (total, drops, "not finished within"),
        (
            impatient(),
            Reply::new(200, "").manner(Manner::Silent),
            "silent",
        ),
    ] {
        let server = Server::start(move |_| reply.clone()).await;
        let fetched = anything(settings, &at(format!("{}/x", server.origin))).await;
        check_refused(fetched, PluginReason::TooSlow, Retry::Backoff, &[text]);
    }
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_not_taken() {
    let reply = Reply::new(200, PLUGIN).manner(Manner::Announced(1000));
    let server = Server::start(move |_| reply.clone()).await;
    check_refused(
        anything(local(), &at(format!("{}/x", server.origin))).await,
        PluginReason::Unreachable,
        Retry::Backoff,
        &["broke before the answer was complete"],
    );
}

#[tokio::test]
async fn answers_that_say_no_are_told_apart() {
    let minute = Duration::from_mins(1);
    for (reply, reason, retry) in [
        (Reply::new(401, ""), PluginReason::Denied, Retry::Backoff),
        (Reply::new(403, ""), PluginReason::Denied, Retry::Backoff),
        (Reply::new(404, ""), PluginReason::NotFound, Retry::Backoff),
        (
            Reply::new(429, ""),
            PluginReason::Throttled,
            Retry::At(minute),
        ),
        (
            Reply::new(429, "").header("retry-after", "7"),
            PluginReason::Throttled,
            Retry::At(Duration::from_secs(7)),
        ),
        (
            Reply::new(503, "").header("retry-after", "99999999"),
            PluginReason::Throttled,
            Retry::At(Duration::from_hours(1)),
        ),
        (
            Reply::new(500, ""),
            PluginReason::ServerFailed,
            Retry::Backoff,
        ),
        (
            Reply::new(503, ""),
            PluginReason::ServerFailed,
            Retry::Backoff,
        ),
        (
            Reply::new(204, ""),
            PluginReason::ServerFailed,
            Retry::Backoff,
        ),
        (
            Reply::new(304, ""),
            PluginReason::ServerFailed,
            Retry::Backoff,
        ),
    ] {
        let server = Server::start(move |_| reply.clone()).await;
        let source = with_password(format!("{}/x", server.origin));
        check_refused(anything(local(), &source).await, reason, retry, &[]);
    }
    // Nothing listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    check_refused(
        anything(local(), &at(format!("http://127.0.0.1:{port}/"))).await,
        PluginReason::Unreachable,
        Retry::Backoff,
        &["failed to connect to http://127.0.0.1", "refused"],
    );
}

#[tokio::test]
async fn the_signature_of_a_file_is_at_its_address() {
    let server = Server::start(|request| match request.path.as_str() {
        "/pond.wasm" | "/unsigned.wasm" => Reply::new(200, PLUGIN),
        "/pond.wasm.sig" if request.query["v"] == "1" => Reply::new(200, SIGNATURE),
        _ => Reply::new(404, ""),
    })
    .await;
    let fetch_of = |path: &str, key: &'static str| {
        let source = at(format!("{}/{path}?v=1", server.origin));
        async move { fetch(local(), &source, &expect_keys(&[key])).await }
    };
    let fetched = fetch_of("pond.wasm", P256_PUB).await.unwrap();
    assert_eq!(fetched.signed_by, Some(key_id(P256_PUB)));
    check_refused(
        fetch_of("pond.wasm", OTHER_PUB).await,
        PluginReason::BadSignature,
        Retry::OnChange,
        &["none of the expected keys"],
    );
    check_refused(
        fetch_of("unsigned.wasm", P256_PUB).await,
        PluginReason::Unsigned,
        Retry::Backoff,
        &["/unsigned.wasm.sig is missing"],
    );
}
