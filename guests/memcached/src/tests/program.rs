//! Runs the real memcached: it starts with every accepted parent's arguments, and not with a rejected one's.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child as Process, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use innkeeper_sdk::testing::TestRequest;
use proptest::test_runner::Config as ProptestConfig;
use serde_json::{Value, json};

use super::{bad_input::verdict, parent};
use crate::{children::Pool, config::Config};

/// A running memcached; dropping the value ends it.
struct Program {
    process: Process,
    port: u16,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// Starts memcached with a spec's arguments, whether or not the spec is valid.
fn start(spec: &Value) -> Program {
    let parent = parent(spec.clone());
    let request = TestRequest::new(&parent).build();
    let config = Config::default();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let process = Command::new("memcached")
        .args(Pool::new(&request, &parent.spec, &config).arguments())
        // Only root switches to another user.
        .args(["-u", "nobody", "-l", "127.0.0.1", "-p", &port.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("memcached is missing: run ./tests/setup --only programs");
    Program { process, port }
}

impl Program {
    /// Connects once memcached listens; `None` if it exits.
    fn connection(&mut self) -> Option<TcpStream> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(1) {
            if self.process.try_wait().unwrap().is_some() {
                return None;
            }
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                return Some(stream);
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("memcached neither listens nor ends");
    }

    /// Peak memory in KiB.
    fn memory_kib_max(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

#[test]
fn what_is_accepted_starts_and_what_is_refused_does_not() {
    let options = |options: Value| json!({ "memcached": options });
    let item =
        |memory: i32, size: &str| options(json!({ "maxMemoryMB": memory, "maxItemSize": size }));
    let threads =
        |threads: i32, most: i32| options(json!({ "threads": threads, "maxConnections": most }));
    let further = |arguments: &[&str]| options(json!({ "extraArgs": arguments }));
    let extended = |value: &str| further(&["-o", value]);
    let accepted = [
        json!({}),
        item(16, "512k"),
        item(16, "1536k"),
        item(16, "8m"),
        item(1024, "512m"),
        threads(1, 22),
        threads(4, 40),
        threads(128, 784),
        further(&[
            "-f", "1.01", "-n", "1", "-R", "1", "-b", "1", "-C", "-F", "-M",
        ]),
        further(&["-n", "524288"]),
        extended("modern"),
        extended("hashpower=13,hot_lru_pct=1,warm_lru_pct=79"),
        extended("hot_lru_pct=40,hot_max_factor=0.1,warm_max_factor=0.1"),
        extended(
            "lru_crawler_sleep=1000000,tail_repair_time=10,worker_logbuf_size=64,watcher_logbuf_size=1",
        ),
        extended("slab_automove_ratio=0.9,slab_automove_window=3,slab_chunk_max=16384"),
        extended("slab_chunk_max=524288,temporary_ttl=60,worker_logbuf_size=4096,idle_timeout=0"),
    ];
    let refused = [
        item(64, "1k"),
        item(64, "100k"),
        item(64, "1025k"),
        threads(64, 256),
        threads(1, 1),
        further(&["-o modern"]),
        further(&["-o"]),
        further(&["-f"]),
        further(&["-f", "1"]),
        further(&["-n", "0"]),
        further(&["-R", "0"]),
        extended(" modern"),
        extended("hashpower=12"),
        extended("hashpower=64"),
        extended("hot_lru_pct=0"),
        extended("hot_lru_pct=41"),
        extended("warm_lru_pct=80"),
        extended("hot_max_factor=0.0"),
        extended("lru_crawler_sleep=1000001"),
        extended("no_lru_maintainer,temporary_ttl=60"),
        extended("slab_automove_ratio=0"),
        extended("slab_automove_window=2"),
        extended("slab_chunk_max=0"),
        extended("slab_chunk_max=2097152"),
        extended("tail_repair_time=9"),
        extended("worker_logbuf_size=1"),
        extended("ext_path=/data/ext:1G"),
    ];
    let rows = accepted.iter().map(|spec| (spec, true));
    for (spec, is_accepted) in rows.chain(refused.iter().map(|spec| (spec, false))) {
        let object = json!({
            "apiVersion": "cache.example.com/v1", "kind": "Memcached",
            "metadata": { "name": "example", "namespace": "default" }, "spec": spec,
        });
        let verdict = verdict(&object);
        assert_eq!(verdict == "accepted", is_accepted, "{spec}: {verdict}");
        let has_started = start(spec).connection().is_some();
        assert_eq!(has_started, is_accepted, "{spec}");
    }
}

/// Fills a cache with one-byte items until it evicts some.
fn fill(stream: &TcpStream, memory_mb: usize) {
    let mut output = stream.try_clone().unwrap();
    // An item takes at least 56 bytes.
    let items = memory_mb * (1 << 20) / 56;
    let mut batch = Vec::new();
    for item in 0..items {
        writeln!(batch, "set k{item:08} 0 0 1 noreply\r\nx\r").unwrap();
        if batch.len() > 1 << 20 {
            output.write_all(&batch).unwrap();
            batch.clear();
        }
    }
    output.write_all(&batch).unwrap();
    output.write_all(b"stats\r\n").unwrap();
    let lines: Vec<String> = BufReader::new(stream)
        .lines()
        .map(Result::unwrap)
        .take_while(|line| line != "END")
        .collect();
    let evictions = lines
        .iter()
        .find_map(|line| line.strip_prefix("STAT evictions "));
    assert_ne!(evictions, Some("0"), "the cache is not full");
}

#[test]
fn a_cache_full_of_small_items_stays_below_the_least_limit() {
    // A full run has 10,000 cases for each property and fills larger caches.
    let is_full = ProptestConfig::default().cases > 256;
    let sizes: &[usize] = if is_full { &[16, 64, 512] } else { &[16] };
    for memory_mb in sizes {
        let mut program = start(&json!({ "memcached": { "maxMemoryMB": memory_mb } }));
        let stream = program.connection().unwrap();
        fill(&stream, *memory_mb);
        let most = u64::try_from(memory_mb * 1024 * 11 / 10 + 32 * 1024).unwrap();
        let memory = program.memory_kib_max();
        assert!(
            memory < most,
            "{memory_mb} MB of items take {memory} KiB, more than {most}"
        );
    }
}
