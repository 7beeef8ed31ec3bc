//! Properties that hold for any input.

use innkeeper_sdk::testing::TestRequest;
use proptest::prelude::*;
use serde_json::Map;

use super::*;

/// Text with characters that are special in YAML or a shell.
fn line() -> impl Strategy<Value = String> {
    "[ -~\u{a0}-\u{2ff}]{1,24}"
}

/// Returns the environment that the kubelet would give to the container, with Secret values.
fn environment(outcome: &Answer, values: &Map<String, Value>) -> Map<String, Value> {
    let pod = &outcome.child("run").unwrap().object["spec"]["template"]["spec"];
    pod["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| {
            let name = variable["name"].as_str().unwrap().to_owned();
            let value = match variable["valueFrom"]["secretKeyRef"]["key"].as_str() {
                Some(key) => values[key].clone(),
                None => variable["value"].clone(),
            };
            (name, value)
        })
        .collect()
}

/// Expands `${NAME}` and `$NAME` as gobackup does before it parses the text.
fn expanded(text: &str, environment: &Map<String, Value>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        let (name, remainder) = after.strip_prefix('{').map_or_else(
            || {
                after.split_at(
                    after
                        .find(|character: char| !character.is_alphanumeric())
                        .unwrap_or(after.len()),
                )
            },
            |inner| inner.split_once('}').unwrap(),
        );
        result.push_str(
            environment
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default(),
        );
        rest = remainder;
    }
    result + rest
}

fn with_password(password: &str) -> Value {
    let config = json!({ "database": "d", "password": password });
    related(
        "Database",
        "pg",
        json!({ "type": "postgresql", "config": config }),
    )
}

proptest! {
    /// Property 3: values arrive unchanged and never become keys.
    #[test]
    fn any_line_survives_expansion_and_parsing(
        password in line(), description in line(), script in line(), args in line(),
    ) {
        // A block scalar cannot represent a blank value.
        prop_assume!(!password.trim().is_empty());
        let mut objects = around();
        objects[0] = with_password(&password);
        objects[0]["spec"]["config"]["args"] = json!(args);
        let parent = backup(json!({ "description": description, "beforeScript": script }));
        let scripts = json!({ "scripts": true });
        let outcome = reconcile_with(&parent, &objects, &scripts).unwrap();
        let values = json!({ "DB0_PASSWORD": password, "id": "i", "key": "k" });
        let environment = environment(&outcome, values.as_object().unwrap());
        let text = expanded(&configuration(&outcome), &environment);
        let parsed: Value = serde_saphyr::from_str(&text).unwrap();
        let expected = json!({ "models": { "nightly": {
            "description": description,
            "before_script": script,
            "compress_with": { "type": "tar", "filename_format": "2006.01.02.15.04.05-" },
            "databases": { "pg": {
                "type": "postgresql", "args": args, "database": "d", "password": password,
                "after_script": "sh \"${HOME}/check-dump\" postgresql pg 'Database pg'",
            } },
            "storages": { "s": {
                "type": "s3", "access_key_id": "i", "bucket": "b", "secret_access_key": "k",
                "path": "default/backup/nightly",
            } },
            "default_storage": "s",
        } } });
        prop_assert_eq!(parsed, expected);
    }

    /// Property 2: a credential only appears under the same key in the child Secret.
    #[test]
    fn credentials_stay_in_their_keys(password in "[a-zA-Z0-9$]{12,24}") {
        let mut objects = around();
        objects[0] = with_password(&password);
        let mut scratch = with_password(&password);
        scratch["metadata"]["name"] = json!("scratch");
        scratch["metadata"]["annotations"] = json!({ "gobackup.io/scratch": "true" });
        scratch["spec"]["config"]["database"] = json!("scratch");
        objects.push(scratch);
        let encode = json!({ "type": "openssl", "password": password });
        let config = json!({ "url": password });
        let notifier = json!({ "name": "hook", "type": "slack", "config": config });
        let target = json!({ "database": "pg", "databaseRef": { "name": "scratch" } });
        let parent = backup(json!({
            "encodeWith": encode, "notifiers": [notifier], "verify": { "databases": [target] },
        }));
        let stored = json!({ "recentRuns": [{
            "jobName": "a", "jobUID": "a", "phase": "Succeeded",
            "artifacts": [{ "storage": "s", "file": "f.tar" }],
        }] });
        let request = TestRequest::new(&parent);
        let first = Plugin::reconcile(&request.clone().build(), &host(&objects)).unwrap();
        prop_assert!(first.child("run").is_some());
        let verifying = request.status(&stored).build();
        let verifying = Plugin::reconcile(&verifying, &host(&objects)).unwrap();
        prop_assert!(verifying.child("verify").is_some());
        for outcome in [&first, &verifying] {
            prop_assert!(!configuration(outcome).contains(&password));
            for child in outcome.children() {
                prop_assert!(!child.object.to_string().contains(&password));
            }
            let report = format!("{:?}", outcome.report());
            prop_assert!(!report.contains(&password));
        }
        let secret = &first.child("config").unwrap().object["data"];
        prop_assert_eq!(&secret["DB0_PASSWORD"], &secret["ENC_PASSWORD"]);
        prop_assert_eq!(&secret["DB0_PASSWORD"], &secret["NT0_URL"]);
        let secret = &verifying.child("verify-config").unwrap().object["data"];
        prop_assert_eq!(&secret["DB0_PASSWORD"], &secret["ENC_PASSWORD"]);
        prop_assert_eq!(secret.as_object().unwrap().len(), 2);
    }

    /// Property 5: one request makes one Job, and a recorded end does not change.
    #[test]
    fn one_request_makes_one_job(succeeds in any::<bool>(), repeats in 1usize..4) {
        let parent = backup(json!({}));
        let uid = "00000000-0000-4000-8000-000000000001";
        let end = if succeeds { outcomes::complete() } else { outcomes::failed() };
        let other = if succeeds { outcomes::failed() } else { outcomes::complete() };
        let mut status = json!({});
        let mut recorded: Option<Value> = None;
        // The passes observe the end, then a contradicting end, then no Job.
        for shown in [Some(end), Some(other), None] {
            for _ in 0..repeats {
                let mut request = TestRequest::new(&parent).status(&status);
                if let Some(shown) = &shown {
                    let job = outcomes::job("nightly", "run-uid", uid, shown.clone());
                    request = request.child("run", &job);
                }
                let outcome = Plugin::reconcile(&request.build(), &host(&around())).unwrap();
                let is_made = |child: &&Child| child.kind() == "Job" && child.apply != ApplyPolicy::Hold;
                prop_assert_eq!(outcome.children().iter().filter(is_made).count(), 0);
                status = outcome.report().status.clone().unwrap();
                let run = status["lastRun"].clone();
                prop_assert_eq!(recorded.get_or_insert_with(|| run.clone()), &run);
                let counts = json!([status["successCount"], status["failureCount"]]);
                let expected = if succeeds { json!([1, 0]) } else { json!([0, 1]) };
                prop_assert_eq!(counts, expected);
            }
        }
    }

    /// Property 6: while an object is missing, no child changes.
    #[test]
    fn a_missing_reference_changes_nothing(missing in 0usize..3, cron in any::<bool>()) {
        let mut objects = around();
        objects.remove(missing);
        let spec = if cron { json!({ "schedule": { "cron": "@daily" } }) } else { json!({}) };
        let outcome = reconcile(&backup(spec), &objects).unwrap();
        prop_assert!(matches!(outcome, Answer::Keep(_)));
    }
}

#[test]
fn a_second_pass_states_the_same() {
    for spec in [
        json!({}),
        json!({ "schedule": { "cron": "@daily-random" } }),
    ] {
        let parent = backup(spec);
        let first = reconcile(&parent, &around()).unwrap();
        let status = first.report().status.clone().unwrap();
        let request = TestRequest::new(&parent)
            .answered(&first)
            .status(&status)
            .build();
        let second = Plugin::reconcile(&request, &host(&around())).unwrap();
        for child in second.children() {
            let before = first.child(&child.key).unwrap();
            assert_eq!(child.object, before.object);
        }
        assert_eq!(second.children().len(), first.children().len());
    }
}
