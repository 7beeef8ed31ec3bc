//! Status, conditions and events.

use innkeeper_sdk::{prelude::*, testing::TestRequest};
use serde_json::json;

use super::{condition, events, first, parent, pass, running, stored, workloads};

#[test]
fn a_running_site_is_ready() {
    let outcome = pass(&running(&parent("shop", &json!({}))));
    let text: Vec<String> = outcome
        .report()
        .conditions
        .iter()
        .map(|reported| condition(&outcome, &reported.type_))
        .collect();
    expect_test::expect![[r"
        DatabaseReady=True/DatabaseReady: the database is ready
        Available=True/Available: 1 of 1 replicas are ready
        Progressing=False/ProgressingComplete: all 1 replicas are updated
        Degraded=False/NotDegraded: no problem is known
        Ready=True/Ready: the site is ready at http://shop.default.svc
        DataPersistent=True/Persistent: data outlives the pods
        Installed=Unknown/OpenInstaller: unless WordPress is installed, the first visitor of http://shop.default.svc/wp-admin/install.php becomes its administrator: set ingress.enabled to false and service.type to ClusterIP, install it through kubectl port-forward, then publish the site and set allowOpenInstaller to true"]]
    .assert_eq(&text.join("\n"));
    assert_eq!(
        *outcome.report().status.as_ref().unwrap(),
        json!({
            "replicas": 1, "readyReplicas": 1,
            "selector": "app.kubernetes.io/component=web,app.kubernetes.io/instance=shop,\
                         app.kubernetes.io/managed-by=innkeeper,app.kubernetes.io/name=wordpress",
            "url": "http://shop.default.svc",
            "image": "wordpress:7.1-apache",
            "database": { "mode": "Managed", "host": "shop-mysql", "secretName": "shop-mysql" },
            "retained": [
                "PersistentVolumeClaim/shop-code", "PersistentVolumeClaim/shop-mysql",
                "Secret/shop-mysql", "Secret/shop-wp",
            ],
            "observedGeneration": 1,
        })
    );
}

#[test]
fn a_published_site_tells_of_the_open_installer() {
    let routes = json!([{ "domain": "a.org" }]);
    let types = json!({ "tenants": { "serviceTypes": ["NodePort", "LoadBalancer"] } });
    let closed = json!({ "type": "ClusterIP" });
    let table = [
        (json!({}), true),
        (json!({ "service": closed }), false),
        (json!({ "routes": routes }), true),
        (
            json!({ "routes": routes, "ingress": { "enabled": false } }),
            false,
        ),
        (
            json!({ "routes": routes, "service": { "type": "LoadBalancer" } }),
            true,
        ),
        (json!({ "service": { "type": "LoadBalancer" } }), true),
        (
            json!({ "routes": routes, "allowOpenInstaller": true }),
            false,
        ),
        (
            json!({ "routes": routes, "allowOpenInstaller": false }),
            true,
        ),
    ];
    for (spec, is_open) in table {
        let request = TestRequest::new(&parent("shop", &spec)).config(&types);
        let outcome = pass(&request);
        let installed = outcome.report().find_condition("Installed");
        assert_eq!(installed.is_some(), is_open, "{spec}");
        let warning = "Warning OpenInstaller".to_owned();
        assert_eq!(events(&outcome).contains(&warning), is_open, "{spec}");
        let again = pass(&request.status(&stored(outcome.report())));
        assert!(!events(&again).contains(&warning), "{spec}");
    }
    assert_eq!(
        condition(&first(&json!({ "routes": routes })), "Installed"),
        "Installed=Unknown/OpenInstaller: unless WordPress is installed, the first visitor of \
         http://a.org/wp-admin/install.php becomes its administrator: set ingress.enabled to false and \
         service.type to ClusterIP, install it through kubectl port-forward, then publish the site and \
         set allowOpenInstaller to true"
    );
}

#[test]
fn conditions_follow_the_replicas() {
    let spec = json!({
        "replicas": 3,
        "code": { "persistentVolumeClaim": { "accessModes": ["ReadWriteMany"] } },
    });
    let request = running(&parent("shop", &spec));
    let outcome = pass(&request);
    let partly = pass(&request.answered(&workloads(&outcome, 2, 1)));
    assert_eq!(
        condition(&partly, "Available"),
        "Available=True/Available: 2 of 3 replicas are ready"
    );
    assert_eq!(
        condition(&partly, "Degraded"),
        "Degraded=True/Degraded: 2 of 3 replicas are ready"
    );
    assert_eq!(
        condition(&partly, "Ready"),
        "Ready=False/NotReady: 2 of 3 replicas are ready"
    );
}

#[test]
fn a_status_older_than_its_spec_is_progress() {
    let request = running(&parent("shop", &json!({})));
    let mut web = workloads(&pass(&request), 1, 1)
        .child("web")
        .unwrap()
        .clone();
    web.object["metadata"]["generation"] = json!(2);
    let stale = request.answered(&Answer::from(Desired::new().children([web])));
    assert_eq!(
        condition(&pass(&stale), "Progressing"),
        "Progressing=True/Progressing: waiting for the Deployment to be updated"
    );
}

#[test]
fn a_site_is_ready_when_all_pods_have_the_new_templates() {
    let old = pass(&running(&parent("shop", &json!({}))));
    let site = json!({ "image": "wordpress:6.9" });
    let database = json!({ "database": { "managed": { "config": "[mysqld]" } } });
    for (key, spec) in [("web", site), ("db", database)] {
        let edited = TestRequest::new(&parent("shop", &spec))
            .status(&stored(old.report()))
            .answered(&first(&json!({})));
        // The workloads before the answer is written.
        let before = pass(&edited.clone().answered(&workloads(&old, 1, 1)));
        let text = condition(&before, "Ready");
        assert!(
            text.starts_with("Ready=False/RollingOut: waiting for "),
            "{key}: {text}"
        );
        assert_eq!(events(&before), [""; 0], "{key}");
        let next = edited.answered(&workloads(&before, 1, 1));
        assert!(
            condition(&pass(&next), "Ready").starts_with("Ready=True/Ready"),
            "{key}"
        );
    }
}

/// A database Pod whose container is in this state.
fn database_pod(state: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "shop-mysql-0", "namespace": "default",
            "labels": innkeeper_kit::labels::base_labels("wordpress", "shop", "database"),
        },
        "status": { "containerStatuses": [state] },
    })
}

#[test]
fn the_pod_of_the_database_tells_what_is_wrong() {
    let message = |text: &str| json!({ "lastState": { "terminated": { "message": text } } });
    let waiting = |reason: &str| json!({ "state": { "waiting": { "reason": reason } } });
    let request = TestRequest::new(&parent("shop", &json!({})));
    let database: Vec<Child> = workloads(&pass(&request), 0, 0)
        .children()
        .iter()
        .filter(|child| child.key.starts_with("db"))
        .cloned()
        .collect();
    let start = request.answered(&Answer::from(Desired::new().children(database)));
    for (state, expected) in [
        (
            message("UserMissing\n"),
            "UserMissing: the database shop-mysql runs, but the user in Secret ",
        ),
        (
            message("UnusablePassword\n"),
            "UnusablePassword: the image cannot set a password with ",
        ),
        (
            message("UnsupportedImage\n"),
            "UnsupportedImage: the image mysql:8.4 has no docker-entrypoint.sh",
        ),
        (
            message("password: abc"),
            "WaitingForDatabase: waiting for the database shop-mysql",
        ),
        (
            waiting("ImagePullBackOff"),
            "WaitingForDatabase: waiting for the database shop-mysql; Pod shop-mysql-0: ImagePullBackOff",
        ),
        (
            waiting("ErrImagePull"),
            "WaitingForDatabase: waiting for the database shop-mysql; Pod shop-mysql-0: ImagePullBackOff",
        ),
        (
            waiting("ContainerCreating"),
            "WaitingForDatabase: waiting for the database shop-mysql",
        ),
    ] {
        let host = super::host().object(&database_pod(&state));
        let outcome = super::pass_with(&start, &host);
        let database = condition(&outcome, "DatabaseReady");
        let text = database.strip_prefix("DatabaseReady=False/").unwrap();
        assert!(text.starts_with(expected), "{text}");
        let is_known = text != "WaitingForDatabase: waiting for the database shop-mysql";
        let degraded = condition(&outcome, "Degraded");
        assert_eq!(
            degraded.starts_with("Degraded=True"),
            is_known,
            "{degraded}"
        );
        let all = json!(outcome.report().status).to_string() + &degraded + text;
        assert!(!all.contains("abc"), "{all}");
        // Pods only explain: a ready database needs none of them.
        let ready = super::pass_with(&running(&parent("shop", &json!({}))), &host);
        assert!(condition(&ready, "DatabaseReady").starts_with("DatabaseReady=True"));
    }
    let host = super::host().not_granted("v1", "Pod");
    super::pass_with(&start, &host);
}

// A Pod's status does not show that the startup probe has failed.
#[test]
fn a_database_that_was_ended_at_its_limit_names_the_field() {
    let request = TestRequest::new(&parent("shop", &json!({})));
    let mut outcome = workloads(&pass(&request), 0, 0);
    if let Answer::Desired(desired) = &mut outcome {
        desired.children.retain(|child| child.key.starts_with("db"));
    }
    let start = request.answered(&outcome);
    let late = "Pod shop-mysql-0 had not started after 600 s and starts again: if it needs longer, raise \
                database.managed.startupSeconds";
    for (end, cause) in [
        ("2026-01-01T00:10:02Z", late),
        ("2026-01-01T00:09:59Z", "Pod shop-mysql-0: CrashLoopBackOff"),
        ("2026-01-02T00:00:00Z", "Pod shop-mysql-0: CrashLoopBackOff"),
    ] {
        let times = json!({ "startedAt": "2026-01-01T00:00:00Z", "finishedAt": end });
        let waiting = json!({ "reason": "CrashLoopBackOff" });
        let state =
            json!({ "lastState": { "terminated": times }, "state": { "waiting": waiting } });
        let host = super::host().object(&database_pod(&state));
        let outcome = super::pass_with(&start, &host);
        assert_eq!(
            condition(&outcome, "DatabaseReady"),
            format!(
                "DatabaseReady=False/WaitingForDatabase: waiting for the database shop-mysql; {cause}"
            )
        );
    }
}

#[test]
fn pods_that_cannot_be_created_are_no_health() {
    let request = running(&parent("shop", &json!({})));
    let up = pass(&request);
    let edited = |key: &str, status: serde_json::Value| {
        let mut outcome = workloads(&up, 1, 1);
        let Answer::Desired(desired) = &mut outcome else {
            unreachable!("a valid parent has children");
        };
        for child in &mut desired.children {
            if child.key == key {
                for (name, value) in status.as_object().unwrap() {
                    child.object["status"][name] = value.clone();
                }
            }
        }
        pass(&request.clone().answered(&outcome))
    };
    let quota = "pods \"shop-5\" is forbidden: exceeded quota: small";
    let failure = json!([{ "type": "ReplicaFailure", "status": "True", "message": quota }]);
    // Also while old Pods are ready.
    let outcome = edited("web", json!({ "conditions": failure }));
    assert_eq!(
        condition(&outcome, "Degraded"),
        format!("Degraded=True/ReplicaFailure: Pods of the site cannot be created: {quota}")
    );
    let none = json!({ "replicas": 0, "updatedReplicas": 0, "readyReplicas": 0 });
    let outcome = edited("db", none);
    assert_eq!(
        condition(&outcome, "Degraded"),
        "Degraded=True/DatabaseUnavailable: the database shop-mysql is not ready; StatefulSet shop-mysql has no Pod: see its events for the cause, such as a quota, a LimitRange or admission"
    );
}

#[test]
fn a_database_that_was_just_created_is_no_trouble() {
    let request = TestRequest::new(&parent("shop", &json!({})));
    let mut outcome = workloads(&pass(&request), 0, 0);
    let Answer::Desired(desired) = &mut outcome else {
        unreachable!("a valid parent has children");
    };
    desired.children.retain(|child| child.key.starts_with("db"));
    let database = desired.children.iter_mut().find(|child| child.key == "db");
    let object = &mut database.unwrap().object;
    object["status"]["replicas"] = json!(0);
    object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:01:00Z");
    let start = request.answered(&outcome);
    for (seconds, reason) in [
        (60, "NotDegraded"),
        (69, "NotDegraded"),
        (70, "DatabaseUnavailable"),
    ] {
        let host = super::host().now(seconds * 1000);
        let outcome = super::pass_with(&start, &host);
        let degraded = outcome.report().find_condition("Degraded").unwrap();
        assert_eq!(degraded.reason, reason, "{seconds}");
    }
}

#[test]
fn a_child_that_the_cluster_refuses_is_no_health() {
    let spec = json!({
        "replicas": 2, "routes": [{ "domain": "shop.org" }],
        "code": { "persistentVolumeClaim": { "accessModes": ["ReadWriteMany"] } },
        "podDisruptionBudget": { "enabled": true, "maxUnavailable": 1 },
    });
    let request = running(&parent("shop", &spec));
    let up = pass(&request);
    assert!(condition(&up, "Ready").starts_with("Ready=True"));
    for (key, name) in [
        ("db-service", "Service/shop-mysql"),
        ("web-service", "Service/shop"),
        ("ingress", "Ingress/shop"),
        ("pdb", "PodDisruptionBudget/shop"),
    ] {
        let mut older = workloads(&up, 2, 1);
        let Answer::Desired(desired) = &mut older else {
            unreachable!("a valid parent has children");
        };
        desired
            .children
            .iter_mut()
            .find(|child| child.key == key)
            .unwrap()
            .object["metadata"]["annotations"]["innkeeper-sdk/template-hash"] = json!("older");
        let mut request = request.clone().answered(&older);
        let first = pass(&request);
        assert_eq!(
            condition(&first, "Ready"),
            format!("Ready=False/RollingOut: waiting for {name} to be updated")
        );
        assert!(condition(&first, "Degraded").starts_with("Degraded=False"));
        request = request.status(&stored(first.report()));
        for _ in 0..2 {
            let outcome = pass(&request);
            let message = format!("{name} does not match the desired state: see Synced");
            assert_eq!(
                condition(&outcome, "Degraded"),
                format!("Degraded=True/ChildNotApplied: {message}")
            );
            assert_eq!(
                condition(&outcome, "Ready"),
                format!("Ready=False/NotReady: {message}")
            );
            request = request.status(&stored(outcome.report()));
        }
        let next = request.answered(&workloads(&up, 2, 1));
        assert!(condition(&pass(&next), "Ready").starts_with("Ready=True"));
    }
}

#[test]
fn zero_replicas_are_neither_ready_nor_wrong() {
    let outcome = pass(&running(&parent("shop", &json!({ "replicas": 0 }))));
    for (type_, reason) in [
        ("Available", "Unavailable"),
        ("Progressing", "ProgressingComplete"),
        ("Degraded", "NotDegraded"),
        ("Ready", "NotReady"),
    ] {
        let reported = outcome.report().find_condition(type_).unwrap();
        assert_eq!(
            (reported.is_true(), reported.reason.as_str()),
            (false, reason)
        );
    }
    assert_eq!(
        condition(&outcome, "Ready"),
        "Ready=False/NotReady: zero replicas are requested"
    );
    assert_eq!(outcome.child("db").unwrap().object["spec"]["replicas"], 1);
}

#[test]
fn an_external_database_is_in_use_when_the_site_answers() {
    let spec = json!({ "database": { "external": {
        "host": "db.org", "credentialsSecretRef": { "name": "mine" },
    } } });
    let parent = parent("shop", &spec);
    let host = super::host().object(&super::secret("mine", &["username", "password"]));
    let request = super::running_with(&parent, &host);
    let outcome = super::pass_with(&request, &host);
    assert_eq!(
        condition(&outcome, "DatabaseReady"),
        "DatabaseReady=True/ExternalDatabaseInUse: the site answers with the database db.org"
    );
    let database = &outcome.report().status.as_ref().unwrap()["database"];
    let expected = json!({ "mode": "External", "host": "db.org", "secretName": "mine" });
    assert_eq!(*database, expected);
}

#[test]
fn each_transition_has_one_event() {
    let parent = parent("shop", &json!({ "sqlrootpassword": "abc" }));
    let start = TestRequest::new(&parent);
    let outcome = pass(&start);
    assert_eq!(
        events(&outcome),
        [
            "Normal WaitingForDatabase",
            "Warning OpenInstaller",
            "Warning PlaintextPassword"
        ]
    );
    let again = pass(&start.status(&stored(outcome.report())));
    assert_eq!(events(&again), [""; 0]);

    let request = running(&parent).status(&stored(outcome.report()));
    let ready = pass(&request);
    assert_eq!(events(&ready), ["Normal DatabaseReady", "Normal Ready"]);
    let request = request.status(&stored(ready.report()));
    assert_eq!(events(&pass(&request)), [""; 0]);

    let down = pass(&request.answered(&workloads(&ready, 0, 0)));
    assert_eq!(
        events(&down),
        ["Warning DatabaseUnavailable", "Warning NotReady"]
    );
}

#[test]
fn a_condition_that_does_not_apply_is_left_out() {
    assert!(
        first(&json!({}))
            .report()
            .find_condition("PlaintextPassword")
            .is_none()
    );
}
