//! Recordings of a running host as files: `innkeeper record`.

use std::{fs, io, path::PathBuf, time::Duration};

use http::Method;
use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams, file, runtime};
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
            streams.print(&Output::from_line(path.display().to_string()))?;
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
    let parent: Value = serde_json::from_str(recording.parent()).unwrap_or_default();
    let name = file_name(&recording.plugin, &parent);
    let text = [text, b"\n"].concat();
    let numbers = std::iter::successors(Some(1_u32), |number| number.checked_add(1));
    for number in numbers {
        let path = args.to.join(format!("{name}-{number}.json"));
        match file::create_for_owner(&path, &text) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => {
                written.or_fail(Exit::Failure, failed(&path))?;
                return Ok(path);
            }
        }
    }
    Err(Failure::new(Exit::Failure, failed(&args.to)))
}

/// Leaves room for the number and the extension in the 255 bytes that the name of a file may have on Linux.
const NAME_MAX: usize = 240;

fn failed(path: &std::path::Path) -> String {
    format!("failed to write {}", path.display())
}

/// Returns the plugin, the namespace and the name of the parent as a part of a file name.
fn file_name(plugin: &str, parent: &Value) -> String {
    let metadata = |field: &str| parent["metadata"][field].as_str();
    let parts = [Some(plugin), metadata("namespace"), metadata("name")];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join("-");
    // The answer of a server is no path.
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let mut name = name.replace(|it| !is_plain(it), "_");
    name.truncate(NAME_MAX);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_files_are_plain_and_short_enough_for_any_parent() {
        let named = |name: &str| {
            let parent = serde_json::json!({"metadata": {"namespace": "demo", "name": name}});
            file_name("etcd", &parent)
        };
        assert_eq!(named("a/../b"), "etcd-demo-a_.._b");
        // The longest name of an object.
        assert_eq!(named(&"a".repeat(253)).len(), NAME_MAX);
    }
}
