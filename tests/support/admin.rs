//! A client of the host's admin address: health, metrics and debug endpoints.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{host::Host, wait::eventually};

/// The arguments of a host that serves health and metrics on a free port.
pub const ARGUMENTS: [&str; 2] = ["--admin-address", "127.0.0.1:0"];

/// Returns the admin address that a host has logged; waits for the line.
#[track_caller]
pub fn address(host: &Host) -> String {
    eventually("the host logs its admin address", || {
        let log = host.log().unwrap_or_default();
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            let is_it = line["message"] == "answering for health and metrics";
            is_it.then(|| line["address"].as_str().map(str::to_owned))?
        };
        log.lines().find_map(line).ok_or(log)
    })
}

/// Sends one request; returns the status and the body of the answer.
pub fn ask(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: innkeeper\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// Returns the host's metrics as text.
pub fn scrape(address: &str) -> Result<String> {
    let (status, metrics) = ask(address, "GET", "/metrics", "")?;
    ensure!(status == 200, "{status}: {metrics}");
    Ok(metrics)
}

/// Returns the sum of those samples of a metric whose labels contain a text.
pub fn sum(metrics: &str, name: &str, label: &str) -> f64 {
    let samples = metrics.lines().filter_map(|line| {
        let labels = line.strip_prefix(name)?.strip_prefix('{')?;
        let (labels, value) = labels.split_once("} ")?;
        labels.contains(label).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}
