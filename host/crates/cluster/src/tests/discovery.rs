//! Discovery of the served kinds.

use super::*;

#[tokio::test]
async fn f10_a_server_that_is_down_at_the_start_is_waited_for() {
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
    assert!(cluster.0.state.lock().kinds().is_none());
    assert!(tasks.try_join_next().is_none(), "it tries again");
}

#[tokio::test]
async fn a10_discovery_waits_as_long_as_the_api_server_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options {
        retry_max: Duration::from_secs(5),
        ..options()
    };
    let (_cluster, driver) = Cluster::new(client(&url), options);
    let mut tasks = JoinSet::new();
    tasks.spawn(driver.run(|| {}));
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let (mut stream, _) = listener.accept().await.unwrap();
        asked.push(Instant::now());
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let answer =
            b"HTTP/1.1 429 X\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    }
    assert!(asked[1] - asked[0] >= Duration::from_secs(1));
}
