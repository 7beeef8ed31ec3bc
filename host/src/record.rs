//! The command `record`: writes a running host's recordings to files.

use std::{fs, io, path::PathBuf, time::Duration};

use http::Method;
use innkeeper_command::{Exit, Failure, OrFail as _, Output, Streams, file, runtime};
use innkeeper_reconcile::RECORDINGS_BYTES_MAX;
use innkeeper_sandbox::Recording;
use innkeeper_server::admin::{RecordingOrder, RecordingTarget, client::AdminClient};
use serde_json::Value;

use crate::config::RecordArgs;

/// Extra time beyond the order: the host ends the order by its clock, and the last recordings are in flight then.
const EXTRA_TIME: Duration = Duration::from_secs(15);

/// Orders recordings from a host and writes each to a file.
pub fn run(args: &RecordArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    runtime::block_on(record(args, streams))
}

async fn record(args: &RecordArgs, streams: &mut Streams<'_>) -> Result<Exit, Failure> {
    let address = &args.admin_address;
    let order = order(args);
    let body =
        serde_json::to_string(&order).or_fail(Exit::Failure, "failed to encode the order")?;
    let to = args.to.display();
    // Before the order, whose recordings would otherwise be lost.
    fs::create_dir_all(&args.to).or_fail(Exit::Usage, format!("failed to create {to}"))?;
    let client = AdminClient::new(address, &args.client, streams)?;
    let timeout = order.time() + EXTRA_TIME;
    let mut response = client
        .send(Method::POST, "/debug/recordings", body, timeout)
        .await?;
    let RecordingOrder {
        number, seconds, ..
    } = order;
    streams.note(&format!(
        "waiting for {number} recordings, at most {seconds} s"
    ));
    let mut count = 0;
    let mut line = Vec::new();
    while let Some(part) = response
        .chunk()
        .await
        .or_fail(Exit::Failure, client.no_host())?
    {
        for byte in part {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let path = write(args, &line, streams)?;
            streams.print(&Output::from_line(path.display().to_string()))?;
            count += 1;
            line.clear();
        }
        // The server may be something else that never ends a line.
        if line.len() > RECORDINGS_BYTES_MAX {
            let message = format!(
                "the host at {address} sends a recording of more than {RECORDINGS_BYTES_MAX} bytes"
            );
            return Err(Failure::new(Exit::Failure, message));
        }
    }
    if count == number {
        return Ok(Exit::Success);
    }
    let remedy = match &order.of {
        RecordingTarget::Parent(_) => {
            "the host did not call the plugin for this parent: see the condition Synced, for example because the parent is paused or not selected"
        }
        RecordingTarget::Faults { .. } => {
            "no more calls failed: --parent records a call without a fault, and --timeout waits longer"
        }
    };
    streams.note(&format!(
        "{count} of {number} recordings in {seconds} s: {remedy}"
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

/// Writes a recording to a new file, readable by its owner only.
fn write(args: &RecordArgs, text: &[u8], streams: &mut Streams<'_>) -> Result<PathBuf, Failure> {
    let address = &args.admin_address;
    let message = format!("failed to parse a recording from the host at {address}");
    let recording: Recording = serde_json::from_slice(text).or_fail(Exit::Failure, message)?;
    if recording.secret {
        streams.note("the plugin requested random bytes, which it may use for passwords: keep this recording secret");
    }
    let parent: Value = serde_json::from_str(recording.parent()).unwrap_or_default();
    let name = file_name(&recording.plugin, &parent);
    let text = [text, b"\n"].concat();
    let numbers = std::iter::successors(Some(1_u32), |number| number.checked_add(1));
    for number in numbers {
        let path = args.to.join(format!("{name}-{number}.json"));
        match file::create_for_owner(&path, &text) {
            // Not checked before, because another command may create the file in between.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            written => {
                written.or_fail(Exit::Failure, failed(&path))?;
                return Ok(path);
            }
        }
    }
    Err(Failure::new(Exit::Failure, failed(&args.to)))
}

/// Leaves room for the number and the extension in a Linux file name, 255 bytes.
const NAME_MAX: usize = 240;

fn failed(path: &std::path::Path) -> String {
    format!("failed to write {}", path.display())
}

/// Returns a file name from plugin, namespace and parent name.
fn file_name(plugin: &str, parent: &Value) -> String {
    let metadata = |field: &str| parent["metadata"][field].as_str();
    let name = [Some(plugin), metadata("namespace"), metadata("name")]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("-");
    // A server's response must not choose the path.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut name = name.replace(|c| !is_plain(c), "_");
    // Never within a character: all are ASCII now.
    name.truncate(NAME_MAX);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain_and_short_for_any_parent() {
        let named = |name: &str| {
            let parent = serde_json::json!({"metadata": {"namespace": "demo", "name": name}});
            file_name("etcd", &parent)
        };
        assert_eq!(named("a/../b"), "etcd-demo-a_.._b");
        // The longest object name.
        assert_eq!(named(&"a".repeat(253)).len(), NAME_MAX);
    }
}
