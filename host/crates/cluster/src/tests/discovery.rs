//! Discovery of the served kinds.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::discovery::DiscoveryReader;

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = client(&format!("http://{address}"));
    let (cluster, driver) = Cluster::new(client, options());
    let mut tasks = JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    let registration = cluster.register(interest());
    let deadline = Instant::now() + PATIENCE;
    while cluster.0.discovery_error.lock().is_none() {
        assert!(Instant::now() < deadline, "no error was noticed");
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(registration.waiting()[0].why, Why::Discovering);
    assert!(cluster.0.state.lock().table.kinds().is_none());
    assert!(tasks.try_join_next().is_none(), "it tries again");
}

#[tokio::test]
async fn discovery_waits_as_long_as_the_api_server_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options {
        retry_max: Duration::from_secs(5),
        ..options()
    };
    let (_cluster, driver) = Cluster::new(client(&url), options);
    let mut tasks = JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    let mut times = Vec::new();
    while times.len() < 2 {
        let (mut stream, _) = listener.accept().await.unwrap();
        times.push(Instant::now());
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let answer =
            b"HTTP/1.1 429 X\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    }
    assert!(times[1] - times[0] >= Duration::from_secs(1));
}

/// Answers discovery: the n-th request for `/api` gets the n-th list of core kinds, or "not modified" if the request
/// has that list's tag. `/apis` has no kinds, and the n-th request fails if `fails` is n.
async fn answer_discovery(listener: TcpListener, core: [&str; 3], fails: usize) {
    let counts: [AtomicUsize; 2] = Default::default();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let is_core = head.starts_with("GET /api ");
        let count = counts[usize::from(is_core)].fetch_add(1, Ordering::Relaxed) + 1;
        let kind = if is_core { core[count - 1] } else { "" };
        let tag = format!("\"{kind}\"");
        let resources: Vec<Value> = kind
            .split_whitespace()
            .map(|kind| {
                json!({
                    "resource": kind.to_lowercase(), "responseKind": {"kind": kind},
                    "scope": "Namespaced", "verbs": ["list", "watch"],
                })
            })
            .collect();
        let version = json!({"version": "v1", "resources": resources});
        let group = json!({"metadata": {"name": ""}, "versions": [version]});
        let (status, body) = match () {
            () if !is_core && count == fails => (503, String::new()),
            () if head.contains(&tag) => (304, String::new()),
            () => {
                let list = json!({"kind": "APIGroupDiscoveryList", "items": [group]});
                (200, list.to_string())
            }
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\netag: {tag}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_is_seen_after_a_refresh_of_which_one_half_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(answer_discovery(
        listener,
        ["Pod", "Pod Service", "Pod Service"],
        2,
    ));
    let wire = Wire::new(client(&url), options());
    let mut reader = DiscoveryReader::default();
    let first = reader.refresh(&wire).await.unwrap().unwrap();
    assert_eq!(first.get(&service_kind()), None);
    assert!(reader.refresh(&wire).await.is_err());
    let third = reader
        .refresh(&wire)
        .await
        .unwrap()
        .expect("the change should not be lost");
    assert!(third.get(&service_kind()).is_some());
}
