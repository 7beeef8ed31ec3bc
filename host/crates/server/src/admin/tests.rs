use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    connections::{CONNECTIONS_MAX, HEADER_TIMEOUT},
    *,
};

/// Shows what a test sets.
struct Fixed {
    problem: Mutex<Option<String>>,
    filter: Mutex<String>,
}

impl Fixed {
    fn checks(&self) -> Vec<Check> {
        let fine = Check {
            name: "runtime".to_owned(),
            problem: None,
        };
        let other = Check {
            name: "watches".to_owned(),
            problem: self.problem.lock().clone(),
        };
        vec![fine, other]
    }
}

impl StatusProvider for Fixed {
    fn alive(&self) -> Vec<Check> {
        self.checks()
    }

    fn ready(&self) -> Vec<Check> {
        self.checks()
    }

    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }

    fn state(&self) -> serde_json::Value {
        serde_json::json!({"plugins": []})
    }

    fn plan(&self, plugin: &str) -> Option<String> {
        (plugin == "web").then(|| "{}\n".to_owned())
    }

    fn reviewer(&self) -> Option<Arc<Reviewer>> {
        None
    }

    fn log_filter(&self) -> String {
        self.filter.lock().clone()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        if filter.contains(' ') {
            return Err("that is no filter".to_owned());
        }
        filter.clone_into(&mut self.filter.lock());
        Ok(())
    }

    fn record(&self, order: &RecordingOrder) -> Result<mpsc::Receiver<String>, OrderRefusal> {
        match &order.of {
            RecordingTarget::Parent(parent) => Err(OrderRefusal::Unknown(parent.to_string())),
            RecordingTarget::Faults { plugin } if plugin == "secret" => {
                Err(OrderRefusal::Refused("no".to_owned()))
            }
            RecordingTarget::Faults { .. } => {
                let (to, from) = mpsc::channel(2);
                // The channel has room for both.
                for text in ["{}", "[]"] {
                    drop(to.try_send(text.to_owned()));
                }
                Ok(from)
            }
        }
    }
}

fn start(debug: bool) -> (Admin, Arc<Fixed>) {
    let shown = Arc::new(Fixed {
        problem: Mutex::new(None),
        filter: Mutex::new("info".to_owned()),
    });
    let args = AdminArgs { debug, ..args(0) };
    let admin = Admin::start(args, shown.clone()).unwrap().unwrap();
    (admin, shown)
}

fn args(port: u16) -> AdminArgs {
    AdminArgs {
        address: Some(SocketAddr::from(([127, 0, 0, 1], port))),
        ..AdminArgs::default()
    }
}

/// The response's status and body.
fn ask(admin: &Admin, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(admin.address()).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: innkeeper\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

#[test]
fn health_says_what_is_wrong() {
    let (admin, shown) = start(false);
    let fine = "[+]runtime ok\n[+]watches ok\n";
    assert_eq!(
        ask(&admin, "GET", "/livez", ""),
        (200, format!("{fine}livez check passed\n"))
    );
    assert_eq!(
        ask(&admin, "GET", "/readyz", ""),
        (200, format!("{fine}readyz check passed\n"))
    );
    *shown.problem.lock() = Some("v1 Secret is being listed".to_owned());
    let bad = "[+]runtime ok\n[-]watches failed: v1 Secret is being listed\n";
    assert_eq!(
        ask(&admin, "GET", "/livez", ""),
        (500, format!("{bad}livez check failed\n"))
    );
    assert_eq!(
        ask(&admin, "GET", "/readyz", ""),
        (503, format!("{bad}readyz check failed\n"))
    );
}

#[test]
fn debug_endpoints_exist_only_if_enabled() {
    let (admin, _) = start(false);
    assert_eq!(
        ask(&admin, "GET", "/metrics", ""),
        (200, "# EOF\n".to_owned())
    );
    assert_eq!(ask(&admin, "GET", "/debug/state", "").0, 404);
    assert_eq!(ask(&admin, "PUT", "/debug/log", "debug").0, 404);
    let web = "/debug/plans/web";
    let other = "/debug/plans/other";
    assert_eq!(ask(&admin, "GET", web, ""), (404, String::new()));
    let (admin, _) = start(true);
    let (status, body) = ask(&admin, "GET", "/debug/state", "");
    assert_eq!((status, body.contains("plugins")), (200, true));
    assert_eq!(ask(&admin, "GET", web, ""), (200, "{}\n".to_owned()));
    let (status, body) = ask(&admin, "GET", other, "");
    assert_eq!(status, 404);
    assert!(
        body.starts_with("this host has no waiting candidate"),
        "{body}"
    );
    assert_eq!(
        ask(&admin, "PUT", "/debug/log", "debug\n"),
        (200, "debug\n".to_owned())
    );
    assert_eq!(
        ask(&admin, "GET", "/debug/log", ""),
        (200, "debug\n".to_owned())
    );
    assert_eq!(
        ask(&admin, "PUT", "/debug/log", "a b"),
        (400, "that is no filter\n".to_owned())
    );
}

#[test]
fn an_order_of_recordings_is_checked_and_answered_line_by_line() {
    let order = |of: &str, number: u32, seconds: u64| {
        format!("{{\"of\": {of}, \"number\": {number}, \"seconds\": {seconds}}}")
    };
    let faults = |plugin: &str| format!("{{\"faults\": {{\"plugin\": \"{plugin}\"}}}}");
    let parent = "{\"parent\": {\"namespace\": null, \"name\": \"a\"}}";
    let (admin, _) = start(true);
    for (text, status, body) in [
        (
            order(&faults("web"), 2, 1),
            200,
            "3\r\n{}\n\r\n3\r\n[]\n\r\n0\r\n\r\n",
        ),
        (order(parent, 1, 1), 422, "a\n"),
        (order(&faults("secret"), 1, 1), 409, "no\n"),
        (
            order(&faults("web"), 0, 1),
            400,
            "give a number of 1 to 100",
        ),
        (
            order(&faults("web"), 1, 3601),
            400,
            "give a number of 1 to 100 and a time of 1 to 3600 seconds",
        ),
        (
            "{}".to_owned(),
            400,
            "failed to parse the order: missing field `of`",
        ),
    ] {
        let answer = ask(&admin, "POST", "/debug/recordings", &text);
        assert_eq!(answer.0, status, "{answer:?}");
        assert!(answer.1.starts_with(body), "{answer:?}");
    }
    let (admin, _) = start(false);
    let text = order(&faults("web"), 1, 1);
    assert_eq!(ask(&admin, "POST", "/debug/recordings", &text).0, 404);
}

/// Returns true if the server closes the connection within a time.
fn is_closed(mut stream: &TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    let read = stream.read(&mut [0; 1024]);
    read.map_or_else(
        |error| error.kind() == io::ErrorKind::ConnectionReset,
        |_| true,
    )
}

#[test]
fn idle_connections_above_the_maximum_are_closed_for_new_ones() {
    let (admin, _) = start(false);
    // Before the first connection: its timeout ends later than the check below allows.
    let begin = Instant::now();
    let connect = |_| TcpStream::connect(admin.address()).unwrap();
    let idle: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(connect).collect();
    assert_eq!(ask(&admin, "GET", "/livez", "").0, 200);
    for stream in &idle[..CONNECTIONS_MAX] {
        assert!(is_closed(stream, HEADER_TIMEOUT));
    }
    assert!(begin.elapsed() < HEADER_TIMEOUT, "closed by the timeout");
}

/// Connects from this local address.
fn connect_from(source: [u8; 4], admin: &Admin) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let stream = runtime
        .block_on(socket.connect(admin.address()))
        .unwrap()
        .into_std()
        .unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn a_client_with_few_connections_keeps_them_while_another_opens_many() {
    let (admin, _) = start(false);
    let begin = Instant::now();
    let mut few = connect_from([127, 0, 0, 2], &admin);
    let connect = |_| TcpStream::connect(admin.address()).unwrap();
    let many: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(connect).collect();
    assert!(is_closed(&many[0], HEADER_TIMEOUT));
    write!(few, "GET /livez HTTP/1.1\r\nhost: innkeeper\r\n\r\n").unwrap();
    let mut answer = String::new();
    few.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(begin.elapsed() < HEADER_TIMEOUT, "closed by the timeout");
}

#[test]
fn a_client_that_sends_no_complete_header_is_closed() {
    let (admin, _) = start(false);
    let mut slow = TcpStream::connect(admin.address()).unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost:").unwrap();
    assert!(is_closed(&slow, 5 * HEADER_TIMEOUT));
}

/// Panics in the liveness check.
struct Panicking;

impl StatusProvider for Panicking {
    fn alive(&self) -> Vec<Check> {
        panic!("on purpose")
    }

    fn ready(&self) -> Vec<Check> {
        Vec::new()
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn plan(&self, _: &str) -> Option<String> {
        None
    }

    fn reviewer(&self) -> Option<Arc<Reviewer>> {
        None
    }

    fn log_filter(&self) -> String {
        String::new()
    }

    fn set_log_filter(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn record(&self, _: &RecordingOrder) -> Result<mpsc::Receiver<String>, OrderRefusal> {
        Err(OrderRefusal::Refused(String::new()))
    }
}

#[tokio::test]
async fn a_host_ends_with_the_thread() {
    let started = tokio::task::spawn_blocking(|| Admin::start(args(0), Arc::new(Panicking)));
    let admin = started.await.unwrap().unwrap().unwrap();
    TcpStream::connect(admin.address())
        .unwrap()
        .write_all(b"GET /livez HTTP/1.1\r\n\r\n")
        .unwrap();
    let host = admin.run_host(pending());
    let ended = tokio::time::timeout(Duration::from_secs(30), host);
    let error = ended.await.expect("the host should end").unwrap_err();
    assert_eq!(error.exit(), Exit::Failure);
    assert!(error.to_string().contains("health and metrics"), "{error}");
}

#[tokio::test]
async fn a_host_ends_by_itself_while_the_thread_answers() {
    let (admin, _) = tokio::task::spawn_blocking(|| start(false)).await.unwrap();
    admin.run_host(std::future::ready(Ok(()))).await.unwrap();
    // The drop waits for the thread, whose runtime must not be dropped in this one.
    tokio::task::spawn_blocking(|| drop(admin)).await.unwrap();
}

#[test]
fn the_error_names_an_address_in_use() {
    let (admin, shown) = start(false);
    let error = Admin::start(args(admin.address().port()), shown)
        .err()
        .unwrap();
    assert!(
        error.to_string().contains(&admin.address().to_string()),
        "{error}"
    );
}

#[test]
fn a_dropped_server_stops_listening() {
    let (admin, _) = start(false);
    let address = admin.address();
    drop(admin);
    assert!(TcpStream::connect(address).is_err());
}

/// Returns the error message for these files.
fn rejected(certificate: &str, key: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let args = AdminArgs {
        tls: true,
        certificate: place("tls.crt", certificate),
        key: place("tls.key", key),
        ..args(0)
    };
    let shown = Arc::new(Panicking);
    let error = Admin::start(args, shown).err().expect("the start fails");
    assert_eq!(error.exit(), Exit::Usage);
    innkeeper_model::error_chain(&error).to_string()
}

#[test]
fn an_unusable_certificate_is_named_with_its_file_and_a_remedy() {
    let pem = |label: &str, der: &[u8]| {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let one = made();
    let other = made();
    let certificate = pem("CERTIFICATE", one.cert.der());
    let key = pem("PRIVATE KEY", &one.signing_key.serialize_der());
    let foreign = pem("PRIVATE KEY", &other.signing_key.serialize_der());
    for (certificate, key, parts) in [
        ("", &*key, ["tls.crt", "a certificate in PEM form"]),
        (&*certificate, "", ["tls.key", "a private key in PEM form"]),
        (
            &*certificate,
            &*foreign,
            ["tls.key", "give the key of this certificate"],
        ),
    ] {
        let message = rejected(certificate, key);
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
}
