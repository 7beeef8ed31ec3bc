//! Recordings of a running host as files: `innkeeper record`.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::Duration,
};

use http::Method;
use innkeeper_command::{Exit, Failure, OrFail as _, Streams, runtime};
use innkeeper_reconcile::RECORDINGS_BYTES_MAX;
use innkeeper_sandbox::Recording;
use innkeeper_server::admin::{RecordingOrder, RecordingTarget, client::AdminClient};
use serde_json::Value;

use crate::config::RecordArgs;

/// The time for the host to answer beyond the time of the order. Chosen, not measured: the host ends the order by its own
/// clock, and only its last recordings are on their way then.
const PATIENCE: Duration = Duration::from_secs(15);

/// Orders recordings of a host and writes each to a file.
pub fn run(args: &RecordArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    runtime::block_on(record(args, streams))
}

async fn record(args: &RecordArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let address = &args.admin_address;
    let order = order(args);
    let body =
        serde_json::to_string(&order).or_fail(Exit::Failure, "failed to encode the order")?;
    let to = args.to.display();
    fs::create_dir_all(&args.to).or_fail(Exit::Usage, format!("failed to create {to}"))?;
    let client = AdminClient::new(address, &args.client, streams)?;
    let patience = order.time() + PATIENCE;
    let mut answer = client
        .send(Method::POST, "/debug/recordings", body, patience)
        .await?;
    let (number, seconds) = (order.number, order.seconds);
    streams.note(&format!(
        "waiting for {number} recordings, at most {seconds} s"
    ));
    let (mut taken, mut line) = (0, Vec::new());
    while let Some(part) = answer
        .chunk()
        .await
        .or_fail(Exit::Failure, client.no_host())?
    {
        for byte in part {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let path = keep(args, &line, streams)?;
            streams.print(&format!("{}\n", path.display()))?;
            taken += 1;
            line.clear();
        }
        if line.len() > RECORDINGS_BYTES_MAX {
            let message = format!(
                "the host at {address} sends a recording of more than {RECORDINGS_BYTES_MAX} bytes"
            );
            return Err(Failure::new(Exit::Failure, message));
        }
    }
    if taken == number {
        return Ok(Exit::Success);
    }
    let remedy = match &order.of {
        RecordingTarget::Parent(_) => {
            "the parent had no call: its condition Synced says why, for example that it is paused or not selected"
        }
        RecordingTarget::Faults { .. } => {
            "the other calls had no fault: --parent records a call without one, and --timeout waits longer"
        }
    };
    streams.note(&format!(
        "{taken} of {number} recordings in {seconds} s: {remedy}"
    ));
    Ok(Exit::Finding)
}

fn order(args: &RecordArgs) -> RecordingOrder {
    let of = match (&args.parent, &args.plugin) {
        (Some(parent), _) => RecordingTarget::Parent(parent.clone()),
        (None, plugin) => RecordingTarget::Faults {
            plugin: plugin.as_ref().map(ToString::to_string).unwrap_or_default(),
        },
    };
    RecordingOrder {
        of,
        number: args.next_faults.unwrap_or(1),
        seconds: args.timeout.as_secs(),
    }
}

/// Writes a recording to a file of its own, which only its owner can read.
fn keep(args: &RecordArgs, text: &[u8], streams: &mut Streams<'_>) -> Result<PathBuf, Failure> {
    let address = &args.admin_address;
    let message = format!("failed to parse a recording of the host at {address}");
    let recording: Recording = serde_json::from_slice(text).or_fail(Exit::Failure, message)?;
    if recording.secret {
        streams.note("the plugin asked for random bytes, from which it may have made passwords: keep this recording secret");
    }
    let name = name(&recording);
    let numbers = std::iter::successors(Some(1_u32), |number| number.checked_add(1));
    for number in numbers {
        let path = args.to.join(format!("{name}-{number}.json"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = match file {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            other => other.or_fail(Exit::Failure, failed(&path))?,
        };
        let written = file.write_all(text).and_then(|()| file.write_all(b"\n"));
        written.or_fail(Exit::Failure, failed(&path))?;
        return Ok(path);
    }
    Err(Failure::new(Exit::Failure, failed(&args.to)))
}

fn failed(path: &std::path::Path) -> String {
    format!("failed to write {}", path.display())
}

/// Returns the plugin, the namespace and the name of the parent as a part of a file name.
fn name(recording: &Recording) -> String {
    let parent: Value = serde_json::from_str(recording.parent()).unwrap_or_default();
    let metadata = |field: &str| parent["metadata"][field].as_str().map(str::to_owned);
    let plugin = Some(recording.plugin.clone());
    let parts = [plugin, metadata("namespace"), metadata("name")];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join("-");
    // The answer of a server is no path.
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    name.replace(|it| !is_plain(it), "_")
}
