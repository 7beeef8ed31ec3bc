//! What claims record about their data, and specs that do not fit it.

use innkeeper_guest_testing::stored_conditions;
use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::{Value, json};

use super::{claim, condition, events, parent, pass, running, secret, workloads};

/// A site whose parent is edited during a test.
struct Course {
    /// The last accepted answer, with the database's ready Pods.
    outcome: Answer,
    ready: i64,
}

impl Course {
    fn new(spec: &Value) -> Self {
        Self {
            outcome: pass(&running(&parent("shop", spec))),
            ready: 1,
        }
    }

    /// A site whose database has never been ready.
    fn starting(spec: &Value) -> Self {
        Self {
            outcome: super::first(spec),
            ready: 0,
        }
    }

    /// Passes with another spec until nothing changes; returns the error if it is rejected.
    fn edit(&mut self, spec: &Value, ready: i64) -> Result<(), String> {
        for _ in 0..3 {
            // The first answer has the Secrets, which later answers hold.
            let edited =
                TestRequest::new(&parent("shop", spec)).answered(&super::first(&json!({})));
            let request = edited.answered(&workloads(&self.outcome, 1, self.ready));
            let answer = crate::Plugin::reconcile(&request.build(), &super::host());
            self.outcome = answer.map_err(|fault| fault.message)?;
            self.ready = ready;
        }
        Ok(())
    }

    fn annotation(&self, key: &str) -> Value {
        let claim = &self.outcome.child("db-claim").unwrap().object;
        claim["metadata"]["annotations"][format!("example.com/{key}")].clone()
    }
}

fn image(image: &str) -> Value {
    json!({ "database": { "managed": { "image": image } } })
}

/// The errors for these images one after another, each with the database's ready Pods.
fn refusals(images: &[(&str, i64)]) -> Vec<String> {
    let (first, ready) = images[0];
    let mut course = match ready {
        0 => Course::starting(&image(first)),
        _ => Course::new(&image(first)),
    };
    images[1..]
        .iter()
        .filter_map(|(name, ready)| course.edit(&image(name), *ready).err())
        .collect()
}

#[test]
fn an_image_that_was_never_ready_can_be_taken_back() {
    for images in [
        vec![("mysql:8.4", 1), ("mysql:84", 0), ("mysql:8.4", 1)],
        vec![("mysql:8.4", 1), ("mysql:9.7", 0), ("mysql:8.4", 1)],
        vec![("mysql:84", 0), ("mysql:8.4", 1)],
        vec![("mysql:8.4.3", 1), ("mysql:8", 1)],
        vec![("mysql:8.4.3", 1), ("mysql:lts", 1)],
        vec![("mysql:8.4.3", 1), ("percona:8.0", 1)],
        vec![
            ("mysql:5.7", 1),
            ("mysql:8.0", 1),
            ("mysql:8.4", 1),
            ("mysql:9.7", 1),
        ],
        vec![("mysql:8.0", 1), ("mysql:8.1", 1), ("mysql:8.4", 1)],
        vec![("mariadb:10.6", 1), ("mariadb:11.4", 1)],
    ] {
        assert_eq!(refusals(&images), [""; 0], "{images:?}");
    }
}

#[test]
fn an_image_reads_the_data_of_the_last_ready_one() {
    let older = |new: &str, old: &str| {
        format!(
            "spec.database.managed.image: {new} is older than the running {old}, a data directory cannot be \
             downgraded"
        )
    };
    let jump = |new: &str, old: &str, path: &str| {
        format!(
            "spec.database.managed.image: {new} cannot read the data of {old}: go through {path}"
        )
    };
    let table = [
        (
            vec![("mysql:8.4", 1), ("mysql:9.7", 1), ("mysql:8.4", 1)],
            older("mysql:8.4", "mysql:9.7"),
        ),
        (
            vec![("mysql:8.4.3", 1), ("docker.io/library/mysql:8.0", 1)],
            older("docker.io/library/mysql:8.0", "mysql:8.4.3"),
        ),
        (
            vec![("mysql:8.4", 1), ("mysql:9.7", 0), ("mysql:8.0", 1)],
            older("mysql:8.0", "mysql:8.4"),
        ),
        (
            vec![("mysql:5.7", 1), ("mysql:9.7", 1)],
            jump("mysql:9.7", "mysql:5.7", "8.0 and 8.4"),
        ),
        (
            vec![("mysql:5.7", 1), ("mysql:8", 1)],
            jump("mysql:8", "mysql:5.7", "8.0 and 8.4"),
        ),
        (
            vec![("mysql:8.0.36", 1), ("mysql:9.1", 1)],
            jump("mysql:9.1", "mysql:8.0.36", "8.4"),
        ),
        (
            vec![("mysql:5.6", 1), ("mysql:8.0", 1)],
            jump("mysql:8.0", "mysql:5.6", "5.7"),
        ),
        (
            vec![("mysql:8.4", 1), ("mariadb:11.4", 1)],
                "spec.database.managed.image: claim shop-mysql holds data of MySQL, which mariadb:11.4 cannot read: use an image of MySQL"
                    .to_owned(),
        ),
        ];
    for (images, refusal) in table {
        assert_eq!(refusals(&images), [refusal], "{images:?}");
    }
}

#[test]
fn an_image_is_recorded_after_its_pod_has_been_ready_for_a_while() {
    let old = image("mysql:8.4");
    let new = TestRequest::new(&parent("shop", &image("mysql:9.7")))
        .answered(&super::first(&old))
        .answered(&pass(&running(&parent("shop", &old))));
    let started = pass(&new);
    let mut ready = workloads(&started, 1, 1);
    let Answer::Desired(desired) = &mut ready else {
        unreachable!("a valid parent has children");
    };
    for child in desired
        .children
        .iter_mut()
        .filter(|child| child.key == "db")
    {
        child.object["status"]["availableReplicas"] = json!(0);
    }
    let recorded = |outcome: &Answer| {
        let claim = &outcome.child("db-claim").unwrap().object;
        claim["metadata"]["annotations"]["example.com/database-image"].clone()
    };
    let soon = pass(&new.clone().answered(&ready));
    assert_eq!(recorded(&soon), "mysql:8.4");
    assert!(condition(&soon, "Ready").starts_with("Ready=False/RollingOut"));
    let later = pass(&new.answered(&workloads(&started, 1, 1)));
    assert_eq!(recorded(&later), "mysql:9.7");
    assert!(condition(&later, "Ready").starts_with("Ready=True"));
}

#[test]
fn the_last_ready_image_is_recorded_on_the_claim() {
    let mut course = Course::new(&image("mysql:8.4"));
    assert_eq!(course.annotation("database-image"), "mysql:8.4");
    course.edit(&image("mysql:9.7"), 0).unwrap();
    assert_eq!(course.annotation("database-image"), "mysql:8.4");
    course.edit(&image("mysql:9.7"), 1).unwrap();
    assert_eq!(course.annotation("database-image"), "mysql:9.7");
    let first = super::first(&json!({}));
    let annotations = &first.child("db-claim").unwrap().object["metadata"]["annotations"];
    assert_eq!(annotations.get("example.com/database-image"), None);
}

#[test]
fn an_existing_stateful_set_keeps_its_policy() {
    let policy = |outcome: &Answer| {
        let spec = &outcome.child("db").unwrap().object["spec"];
        spec.get("podManagementPolicy").cloned()
    };
    let request = running(&parent("shop", &json!({})));
    let mut outcome = pass(&request);
    assert_eq!(policy(&outcome), Some(json!("Parallel")));
    let Answer::Desired(desired) = &mut outcome else {
        unreachable!("a valid parent has children");
    };
    for child in &mut desired.children {
        if child.key == "db" {
            child.object["spec"]["podManagementPolicy"] = json!("OrderedReady");
        }
    }
    let old = request.answered(&workloads(&outcome, 1, 1));
    assert_eq!(policy(&pass(&old)), None);
}

#[test]
fn kept_data_hold_their_own_schema_and_tables() {
    let spec = |schema: &str, prefix: &str| json!({ "database": { "managed": { "databaseName": schema }, "tablePrefix": prefix } });
    let claims: Vec<Child> = pass(&running(&parent("shop", &spec("journal", "wp_"))))
        .children()
        .iter()
        .filter(|child| child.kind() == "PersistentVolumeClaim")
        .cloned()
        .collect();
    let keys = ["root-password", "username", "password"];
    let next = |spec: &Value| {
        TestRequest::new(&parent("shop", spec))
            .answered(&Answer::from(Desired::new().children(claims.clone())))
            .retained("db-secret", &secret("shop-mysql", &keys))
    };
    for same in [
        spec("journal", "wp_"),
        json!({ "database": { "managed": { "databaseName": "journal" } } }),
    ] {
        pass(&next(&same));
    }
    for (other, field, noun, recorded, wanted) in [
        (
            spec("blog", "wp_"),
            "managed.databaseName",
            "schema",
            "journal",
            "blog",
        ),
        (
            json!({}),
            "managed.databaseName",
            "schema",
            "journal",
            "wordpress",
        ),
        (
            spec("journal", "x_"),
            "tablePrefix",
            "tables with the prefix",
            "wp_",
            "x_",
        ),
    ] {
        let message = super::fault(&next(&other)).message;
        let start = format!(
            "spec.database.{field}: claim shop-mysql holds the {noun} {recorded}, and not {wanted}: "
        );
        assert!(message.starts_with(&start), "{message}");
    }
    // Nothing is recorded before the first start has completed.
    let mut course = Course::starting(&spec("journal", "wp_"));
    course.edit(&spec("journal", "x_"), 0).unwrap();
    assert_eq!(course.annotation("table-prefix"), "x_");
}

/// A parent with a size, created at this second, and the claim.
fn sized(size: &str, observed: &str, declared: &str, is_older: bool) -> TestRequest {
    let spec = json!({ "code": { "persistentVolumeClaim": { "size": size } } });
    let mut parent = parent("shop", &spec);
    parent["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:05Z");
    let mut claim = claim("shop-code", observed, &["ReadWriteOnce"]);
    let second = if is_older { 1 } else { 6 };
    claim["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:0{second}Z"));
    claim["metadata"]["annotations"] = json!({ "example.com/declared-size": declared });
    TestRequest::new(&parent).retained("code-claim", &claim)
}

#[test]
fn a_size_goes_back_to_that_of_the_claim() {
    let refusal = "spec.code.persistentVolumeClaim.size: a claim cannot shrink: claim shop-code has been grown \
                   to 20Gi, so state at least that";
    for (size, observed, declared, is_older, expected) in [
        // The class does not let the claim grow: the last applied size stays.
        ("10Gi", "10Gi", "10Gi", false, None),
        ("20Gi", "10Gi", "10Gi", false, None),
        ("20Gi", "20Gi", "20Gi", false, None),
        ("10Gi", "20Gi", "20Gi", false, Some(refusal)),
        // A user has grown the claim.
        ("10Gi", "20Gi", "10Gi", false, None),
        // An earlier parent's claim.
        ("10Gi", "20Gi", "20Gi", true, None),
    ] {
        let request = sized(size, observed, declared, is_older).build();
        let refused = crate::Plugin::reconcile(&request, &super::host()).err();
        assert_eq!(
            refused.map(|fault| fault.message).as_deref(),
            expected,
            "{size} {observed} {declared}"
        );
    }
}

#[test]
fn a_claim_that_does_not_grow_is_reported() {
    let spec = |size: &str| json!({ "code": { "persistentVolumeClaim": { "size": size } } });
    let old = pass(&running(&parent("shop", &spec("10Gi"))));
    let edited = TestRequest::new(&parent("shop", &spec("20Gi")))
        .answered(&super::first(&spec("10Gi")))
        .answered(&workloads(&old, 1, 1));
    let growing = pass(&edited);
    assert_eq!(
        condition(&growing, "Ready"),
        "Ready=False/RollingOut: waiting for claim shop-code to grow to 20Gi"
    );
    assert!(growing.report().requeue.is_some());
    assert!(
        condition(&growing, "Degraded").starts_with("Degraded=False"),
        "{}",
        condition(&growing, "Degraded")
    );
    // The apply has failed, so the claim is unchanged.
    let mut status = growing.report().status.clone().unwrap();
    status["conditions"] = stored_conditions(growing.report());
    let failed = pass(&edited.status(&status));
    let message = "claim shop-code stays at 10Gi instead of 20Gi: see Synced; set its size back, or let \
                   its storage class allow expansion";
    assert_eq!(
        condition(&failed, "Degraded"),
        format!("Degraded=True/ClaimNotGrown: {message}")
    );
    assert_eq!(
        condition(&failed, "Ready"),
        format!("Ready=False/NotReady: {message}")
    );
    assert!(events(&failed).contains(&"Warning ClaimNotGrown".to_owned()));
}
