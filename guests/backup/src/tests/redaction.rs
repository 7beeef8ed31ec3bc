//! The log filter of a run: no Secret value leaves the Pod.

use innkeeper_sdk::testing::TestRequest;
use proptest::prelude::*;

use super::{
    run::{Run, Shell, end},
    standin::STORING,
    *,
};

/// A parent with a credential in each place that can hold one.
fn with_credentials() -> (Value, Vec<Value>) {
    let key = |key: &str| json!({ "name": "keys", "key": key });
    let database = json!({
        "database": "shop", "username_ref": key("user"), "password_ref": key("password"),
    });
    let storage = json!({
        "host": "h", "username": "u", "password_ref": key("ssh"), "private_key_ref": key("id"),
    });
    let parent = backup(json!({
        "encodeWith": { "type": "openssl", "passwordRef": key("encode") },
        "env": [{ "name": "MYSQL_PWD", "valueFrom": { "secretKeyRef": key("own") } }],
        "envFrom": [{ "prefix": "APP_", "secretRef": { "name": "app" } }],
        "backoffLimit": 0,
    }));
    let mut keys = secret("keys", &["user", "password", "ssh", "id", "encode", "own"]);
    for value in keys["data"].as_object_mut().unwrap().values_mut() {
        *value = json!(MARK);
    }
    let objects = vec![
        related(
            "Database",
            "pg",
            json!({ "type": "postgresql", "config": database }),
        ),
        related("Storage", "s", json!({ "type": "sftp", "config": storage })),
        keys,
        secret("app", &["TOKEN"]),
    ];
    (parent, objects)
}

/// A Secret value as the API server shows it.
const MARK: &str = "cGxhbnRlZC12YWx1ZQ==";

/// The forms in which programs print a value.
fn forms(value: &str) -> [String; 4] {
    let percent = |space: &str| {
        value
            .bytes()
            .map(|byte| match byte {
                b' ' => space.to_owned(),
                b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
                _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            })
            .collect::<String>()
    };
    let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
    [value.to_owned(), quoted, percent("+"), percent("%20")]
}

/// A one-line value that appears only here.
fn planted() -> impl Strategy<Value = String> {
    "[!-~]{10,20}( [!-~]{1,9})?"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Neither the log, nor the termination message, nor the report contains a Secret value.
    #[test]
    fn no_value_of_a_secret_leaves_a_run(
        user in "[a-z][!-~]{10,20}", values in prop::collection::vec(planted(), 6), fails in any::<bool>(),
    ) {
        let (parent, objects) = with_credentials();
        let outcome = reconcile(&parent, &objects).unwrap();
        let variables = ["DB0_PASSWORD", "ST0_PASSWORD", "ENC_PASSWORD", "MYSQL_PWD", "APP_TOKEN"];
        let key = format!("-----BEGIN KEY-----\n{}\n-----END KEY-----\n", values[5]);
        let secrets: Vec<&String> = values.iter().chain([&user]).collect();
        let mut output = String::new();
        for value in &secrets {
            for form in forms(value) {
                let lines = [
                    format!("ok {form}{form} ok"),
                    format!("openssl -k {form} -in {form}"),
                    format!("\"{form}\""),
                    form,
                ];
                output += &lines.join("\n");
                output.push('\n');
            }
        }
        let code = i32::from(fails);
        let program = format!("cat \"$TMPDIR/output\" \"$TMPDIR/output\" >&2\n{STORING}exit {code}");
        for shell in Shell::all() {
            let run = Run::new(shell, &program);
            run.file("work/output", &output);
            run.file("keys/ST0_PRIVATE_KEY", &key);
            let named: Vec<_> = variables
                .iter()
                .zip(&values)
                .map(|(name, value)| (*name, value.as_bytes()))
                .chain([("DB0_USERNAME", user.as_bytes())])
                .collect();
            let result = run.end(&outcome, &named);
            prop_assert_eq!(result.code, Some(code), "{:?}", result);
            prop_assert!(result.log.contains("ok *** ok") || result.log.contains("ok ****** ok"));
            let job = if fails { outcomes::failed() } else { outcomes::complete() };
            let request = TestRequest::new(&parent)
                .child("run", &outcomes::job("nightly", "a", "00000000-0000-4000-8000-000000000001", job));
            let mut objects_with_pod = objects.clone();
            objects_with_pod.push(outcomes::pod("a", &result.message));
            let fake = host(&objects_with_pod);
            let later = Plugin::reconcile(&request.build(), &fake).unwrap();
            let texts = [
                ("log", result.log),
                ("message", result.message),
                ("answers", format!("{outcome:?} {later:?}")),
                ("host log", format!("{:?}", fake.log_lines())),
            ];
            for (place, text) in &texts {
                for value in &secrets {
                    for form in forms(value) {
                        prop_assert!(!text.contains(&form), "{}: {} in {}", place, form, text);
                    }
                }
                prop_assert!(!text.contains(MARK), "{}", place);
            }
        }
    }
}

/// A private key's line, for example in a parser's message, would reveal a part of the key.
#[test]
fn no_line_of_a_secret_of_several_lines_is_logged() {
    let (parent, objects) = with_credentials();
    let outcome = reconcile(&parent, &objects).unwrap();
    let key = "-----BEGIN KEY-----\r\nfirst-line-of-key\r\n  second-line=\r\nshort\r\n-----END KEY-----\n";
    for name in ["MYSQL_PWD", "APP_TOKEN"] {
        let program = "echo 'bad line first-line-of-key'
            echo 'key -----BEGIN KEY-----, first-line-of-key,   second-line=, short'
            echo 'second-line%3D'
            exit 1";
        let result = end(program, &outcome, &[(name, key.as_bytes())]);
        assert_eq!(
            result.log,
            "bad line ***\nkey ***, ***,   ***, short\n***\n"
        );
        assert_eq!(result.message, result.log);
    }
}

// gobackup logs the URL, and Go's errors have it without the password.
#[test]
fn the_url_of_a_notifier_is_not_logged() {
    let url_ref = json!({ "name": "keys", "key": "pg" });
    let notifier = json!({ "name": "chat", "type": "slack", "config": { "url_ref": url_ref } });
    let outcome = reconcile(&backup(json!({ "notifiers": [notifier] })), &around()).unwrap();
    let program = "echo \"Send notification to $NT0_URL...\"
        echo 'Post \"https://u:***@hooks.example.com/services/planted-token\": dial tcp: no such host'
        exit 1";
    let url = b"https://u:hidden@hooks.example.com/services/planted-token";
    let result = end(program, &outcome, &[("NT0_URL", url)]);
    assert_eq!(
        result.message,
        "Send notification to ***...\nPost \"https://u:***@hooks.example.com***\": dial tcp: no such host\n"
    );
    assert_eq!(result.log, result.message);
}

#[test]
fn a_failure_is_reported_with_the_last_log_lines() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    let program = "i=0; while [ $i -lt 600 ]; do echo \"line $i ä\"; i=$((i + 1)); done; exit 3";
    let result = end(program, &outcome, &[("DB0_PASSWORD", b"line 59")]);
    assert_eq!(result.code, Some(3));
    assert!(result.message.ends_with("line 589 ä\n***0 ä\n***1 ä\n***2 ä\n***3 ä\n***4 ä\n***5 ä\n***6 ä\n***7 ä\n***8 ä\n***9 ä\n"));
    // The kubelet reads at most 4096 bytes, and a character must not be cut.
    assert!(
        (3000..=4096).contains(&result.message.len()),
        "{}",
        result.message.len()
    );
    assert!(!result.message.contains('\u{fffd}'));
}

// A log word that happens to be a short password would make the log unreadable.
#[test]
fn a_short_value_is_not_replaced() {
    let outcome = reconcile(&backup(json!({})), &around()).unwrap();
    for (value, expected) in [
        ("a", "a bad attempt"),
        ("bad", "a bad attempt"),
        ("attempt", "a bad ***"),
        ("temp", "a bad at***t"),
    ] {
        let result = end(
            "echo a bad attempt; exit 1",
            &outcome,
            &[("DB0_PASSWORD", value.as_bytes())],
        );
        assert_eq!(result.log.trim_end(), expected, "{value}");
    }
}
