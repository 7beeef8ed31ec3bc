//! Commands that print credentials, as in `kubectl`.
//!
//! No message quotes their standard output, because it has tokens and keys.

use std::{
    io::{self, IsTerminal as _, stdin},
    process::{Command, ExitStatus, Stdio},
};

use innkeeper_model::yaml;
use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};

/// The only format without a required interactive mode.
const FIRST_FORMAT: &str = "client.authentication.k8s.io/v1beta1";

const FORMATS: [&str; 2] = ["client.authentication.k8s.io/v1", FIRST_FORMAT];

/// Why a command gave no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A field of the kubeconfig's `exec` is missing or unknown.
    #[error("{0}")]
    Config(String),
    /// The command does not start.
    #[error("failed to run the command {command}: {cause}{}", hinted(.hint.as_deref()))]
    Start {
        command: String,
        cause: io::Error,
        hint: Option<String>,
    },
    /// The command failed.
    #[error("the command {command} ended with {status}: its messages are on standard error")]
    Failed { command: String, status: ExitStatus },
    /// The command printed no credentials in the format of its `apiVersion`.
    #[error("the output of the command {command} {problem}")]
    Output { command: String, problem: String },
}

/// Credentials from a command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Printed {
    pub(super) token: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key_data: String,
    expiration_timestamp: Option<String>,
    #[serde(skip)]
    pub(super) expires: Option<Timestamp>,
}

/// Runs the command and returns its credentials. Blocks.
pub(super) fn run_command(exec: &ExecConfig) -> Result<Printed, Error> {
    let command = check(exec)?;
    let is_interactive = match &exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !stdin().is_terminal() => {
            let problem = format!(
                "the command {command} needs a terminal, because its interactiveMode is Always"
            );
            return Err(Error::Config(problem));
        }
        // IfAvailable, which is also the default in v1beta1.
        _ => stdin().is_terminal(),
    };
    let env = exec.env.iter().flatten().filter_map(|entry| {
        let value = entry.get("value").map(String::as_str).unwrap_or_default();
        Some((entry.get("name")?, value))
    });
    let output = Command::new(command)
        .args(exec.args.iter().flatten())
        .envs(env)
        .env(
            "KUBERNETES_EXEC_INFO",
            request(exec, is_interactive).to_string(),
        )
        .stdin(if is_interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        // For messages to the user, such as the address and code of a login.
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| Error::Start {
            command: command.to_owned(),
            cause,
            hint: exec.install_hint.clone().filter(|hint| !hint.is_empty()),
        })?;
    if !output.status.success() {
        return Err(Error::Failed {
            command: command.to_owned(),
            status: output.status,
        });
    }
    let format = exec.api_version.as_deref().unwrap_or_default();
    parse(&output.stdout, format).map_err(|problem| Error::Output {
        command: command.to_owned(),
        problem,
    })
}

fn hinted(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("; its installHint is: {hint}"))
}

/// Checks the fields, and returns the command.
fn check(exec: &ExecConfig) -> Result<&str, Error> {
    let config = |problem: String| Err(Error::Config(problem));
    let command = exec.command.as_deref().unwrap_or_default();
    if command.is_empty() {
        return config("it has no command".to_owned());
    }
    let format = exec.api_version.as_deref().unwrap_or_default();
    if !FORMATS.contains(&format) {
        return config(format!(
            "it has the apiVersion \"{format}\": use {}",
            FORMATS.join(" or ")
        ));
    }
    if exec.interactive_mode.is_none() && format != FIRST_FORMAT {
        return config(format!(
            "it has no interactiveMode, which {format} requires: use Never, IfAvailable or Always"
        ));
    }
    Ok(command)
}

/// Returns the request in the command's environment.
fn request(exec: &ExecConfig, is_interactive: bool) -> Value {
    let mut spec = json!({"interactive": is_interactive});
    if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        spec["cluster"] = json!(cluster);
    }
    json!({"kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec})
}

/// Parses the output. Errors quote nothing from it.
fn parse(output: &[u8], format: &str) -> Result<Printed, String> {
    let unreadable = || "is no ExecCredential".to_owned();
    let text = str::from_utf8(output).map_err(|_| unreadable())?;
    // JSON, or YAML, which `kubectl` takes too.
    let mut documents = yaml::read(text).map_err(|_| unreadable())?;
    let mut document = documents.pop().filter(|_| documents.is_empty());
    let document = document.as_mut().ok_or_else(unreadable)?;
    if document.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(unreadable());
    }
    if document.get("apiVersion").and_then(Value::as_str) != Some(format) {
        return Err(format!("has another apiVersion than {format}"));
    }
    let mut status = document
        .get_mut("status")
        .map(Value::take)
        .filter(|status| !status.is_null())
        .ok_or_else(|| "has no status".to_owned())?;
    // Go decodes null as an absent field; serde would refuse it.
    if let Value::Object(fields) = &mut status {
        fields.retain(|_, value| !value.is_null());
    }
    let mut printed: Printed =
        serde_json::from_value(status).map_err(|_| "has an unreadable status".to_owned())?;
    let Printed {
        token,
        client_certificate_data: certificate,
        client_key_data: key,
        ..
    } = &printed;
    if certificate.is_empty() != key.is_empty() {
        return Err("has a certificate or a key without the other".to_owned());
    }
    if token.is_empty() && certificate.is_empty() {
        return Err("has neither a token nor a certificate".to_owned());
    }
    printed.expires = printed
        .expiration_timestamp
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|_: jiff::Error| "has an unreadable expirationTimestamp".to_owned())?;
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_read_as_kubectl_does_and_never_quoted() {
        const V1: &str = FORMATS[0];
        let of = |status: &str| {
            format!(r#"{{"kind":"ExecCredential","apiVersion":"{V1}","status":{status}}}"#)
        };
        let problem = |output: &str| match parse(output.as_bytes(), V1) {
            Ok(printed) => format!("{} {:?}", printed.token, printed.expires),
            Err(problem) => problem,
        };
        for (output, expected) in [
            (of(r#"{"token":"s3cret"}"#), "s3cret None"),
            (
                of(r#"{"token":"s3cret","expirationTimestamp":"2026-01-01T00:00:00Z"}"#),
                "s3cret Some(2026-01-01T00:00:00Z)",
            ),
            (
                format!("kind: ExecCredential\napiVersion: {V1}\nstatus: {{token: s3cret}}\n"),
                "s3cret None",
            ),
            ("s3cret".to_owned(), "is no ExecCredential"),
            (String::new(), "is no ExecCredential"),
            ("{\"a\": [s3cret".to_owned(), "is no ExecCredential"),
            (
                of(r#"{"token":"s3cret"}"#).replace("/v1\"", "/v1beta1\""),
                "has another apiVersion than client.authentication.k8s.io/v1",
            ),
            (of("null"), "has no status"),
            (
                of(r#"{"token":null}"#),
                "has neither a token nor a certificate",
            ),
            (of(r#"{"token":["s3cret"]}"#), "has an unreadable status"),
            (
                of(r#"{"token":"t","clientKeyData":"s3cret"}"#),
                "has a certificate or a key without the other",
            ),
            (
                of(r#"{"token":"t","expirationTimestamp":"s3cret"}"#),
                "has an unreadable expirationTimestamp",
            ),
        ] {
            assert_eq!(problem(&output), expected, "{output}");
        }
    }
}
