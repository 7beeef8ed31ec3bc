//! The parts of new and changed children that predicted reports depend on: none that the API server or the host adds.

use expect_test::expect;
use innkeeper_sdk::testing::{TestRequest, predicted_parts};

use super::*;

fn parts(request: TestRequest) -> Option<Vec<String>> {
    predicted_parts(&request.build(), &host(&around()), Plugin::reconcile)
}

#[test]
fn the_report_on_a_new_parent_depends_on_no_part() {
    let mut probed = s3();
    probed["spec"]["probe"] = json!({});
    for parent in [backup(json!({})), probed] {
        let parts = parts(TestRequest::new(&parent));
        assert_eq!(parts, Some(Vec::new()), "{parent}");
    }
}

/// Other reports on a schedule have the time of the next run, which is not predicted.
#[test]
fn the_report_on_a_suspended_schedule_depends_on_the_parts_that_it_reads() {
    let scheduled =
        |suspend: bool| backup(json!({ "schedule": { "cron": "0 2 * * *" }, "suspend": suspend }));
    let first = reconcile(&scheduled(false), &around()).unwrap();
    let shown = |key: &str| {
        let mut object = Value::from(first.child(key).unwrap().object.clone());
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["uid"] = json!(key);
        object
    };
    let request = |suspend: bool| {
        TestRequest::new(&scheduled(suspend))
            .child("config", &shown("config"))
            .child("schedule", &shown("schedule"))
    };
    let suspended = [
        "schedule/metadata/annotations/innkeeper-sdk~1template-hash",
        "schedule/metadata/creationTimestamp",
        "schedule/metadata/uid",
        "schedule/status",
        "config/metadata/annotations/innkeeper-sdk~1template-hash",
    ];
    assert_eq!(parts(request(true)).unwrap(), suspended);
    assert_eq!(parts(request(false)), None);
    assert_eq!(parts(TestRequest::new(&scheduled(false))), None);
}

#[test]
fn reports_on_new_examples_are_predicted() {
    expect![[r"
        01-article.yaml Backup: 2 made, 1 saved
        02-article-cron.yaml CronBackup: 3 made, 0 saved
        03-scheduled.yaml Storage: 1 made, 0 saved
        03-scheduled.yaml Backup: 3 made, 0 saved
        04-files.yaml Storage: 1 made, 0 saved
        04-files.yaml Backup: 3 made, 0 saved
        05-run-now.yaml Storage: 1 made, 0 saved
        05-run-now.yaml Backup: 2 made, 1 saved
        06-restore.yaml Restore: 2 made, 0 saved
        07-notifiers.yaml Storage: 1 made, 0 saved
        07-notifiers.yaml Backup: 3 made, 0 saved
        08-verified.yaml Storage: 1 made, 0 saved
        08-verified.yaml Backup: 3 made, 0 saved
        09-many-databases.yaml Storage: 2 made, 1 saved
        09-many-databases.yaml Backup: 3 made, 0 saved
        10-encrypted.yaml Storage: 1 made, 0 saved
        10-encrypted.yaml Storage: 1 made, 0 saved
        10-encrypted.yaml CronBackup: 3 made, 0 saved
    "]]
    .assert_eq(&PLUGIN.example_calls("backup", host(&[])));
}
