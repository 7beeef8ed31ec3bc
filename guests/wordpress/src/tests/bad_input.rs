//! Bad and borderline parents: the verdict of the definition or, after it, of the plugin.

use expect_test::{Expect, expect};
use innkeeper_crd::Admitted;
use innkeeper_guest_testing as testing;
use innkeeper_sdk::{reconciler::Reconciler, testing::TestRequest};
use kube_cel::{ValidationErrors, Validator};
use serde_json::{Value, json};

use super::{claim, host, manifest, parent, schema, secret};
use crate::Plugin;

/// The parent as the API server stores it, or its verdict in one line.
fn admitted(object: &Value) -> Result<Admitted, String> {
    testing::admit(schema(), object.as_object().unwrap().clone())
}

/// The verdict on a parent, in one line; a cluster has the objects that it may name.
fn verdict(object: &Value) -> String {
    let admitted = match admitted(object) {
        Ok(admitted) => admitted,
        Err(rejected) => return rejected,
    };
    let keys = ["root-password", "username", "password"];
    let host = host()
        .object(&secret("s", &keys))
        .object(&claim("many", "1Gi", &["ReadWriteMany"]))
        .object(&claim("one", "1Gi", &["ReadWriteOnce"]))
        .object(&claim("read", "1Gi", &["ReadOnlyMany"]));
    let request = TestRequest::new(&admitted.object).build();
    let answer = Plugin::reconcile(&request, &host);
    testing::verdict(&admitted, answer.map(|_| "accepted".to_owned()))
}

/// Compares one line for each spec.
#[track_caller]
fn check(specs: &[Value], expected: &Expect) {
    let lines = specs.iter().map(|spec| {
        let verdict = verdict(&parent("shop", spec));
        format!("{spec}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// Compares one line for each edit: the messages of the rules that it breaks.
#[track_caller]
fn check_edits(edits: &[(Value, Value)], expected: &Expect) {
    let rules = &manifest().crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let stored = |spec: &Value| Value::Object(admitted(&parent("shop", spec)).unwrap().object);
    let lines = edits.iter().map(|(old, new)| {
        let messages = Validator::new()
            .validate(rules, &stored(new), Some(&stored(old)))
            .err()
            .map(ValidationErrors::into_vec)
            .into_iter()
            .flatten()
            .map(|error| error.message);
        let verdict = match &messages.collect::<Vec<_>>()[..] {
            [] => "accepted".to_owned(),
            messages => format!("rejected, {}", messages.join("; ")),
        };
        format!("{old} to {new}: {verdict}\n")
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn names_leave_room_for_those_of_children() {
    let longest = "a".repeat(40);
    let too_long = "a".repeat(41);
    let names = [
        &*longest,
        "a-b-1",
        &*too_long,
        "9shop",
        "shop.eu",
        "shop-mysql",
        "shop-mysql-exporter",
    ];
    let lines = names.map(|name| format!("{name}: {}\n", verdict(&parent(name, &json!({})))));
    expect![[r"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: accepted
        a-b-1: accepted
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: rejected, the object: metadata.name must be at most 40 characters
        9shop: rejected, the object: metadata.name must be a DNS label that starts with a letter
        shop.eu: rejected, the object: metadata.name must be a DNS label that starts with a letter
        shop-mysql: rejected, the object: metadata.name must not end in -mysql or -mysql-exporter: these names belong to the database of another site
        shop-mysql-exporter: rejected, the object: metadata.name must not end in -mysql or -mysql-exporter: these names belong to the database of another site
    "]].assert_eq(&lines.concat());
}

#[test]
fn an_external_database_has_a_host_without_a_port() {
    let external = |host: &str| {
        let external = json!({ "host": host, "credentialsSecretRef": { "name": "s" } });
        json!({ "database": { "external": external } })
    };
    let hosts = [
        "db",
        "db-1.example.com.",
        "203.0.113.5",
        "2001:db8::5",
        "[2001:db8::5]",
        "db:3306",
        "203.0.113.5:3306",
        "[2001:db8::5]:3306",
        "[203.0.113.5]",
        "203.0.113.500",
        "2001:db8::g",
        "mysql://db",
        "/run/mysqld.sock",
        "db..example.com",
        "-db",
        "a_b",
        " db",
        "localhost",
        "LocalHost",
        "127.0.0.1",
    ];
    let specs: Vec<Value> = hosts.iter().map(|host| external(host)).collect();
    check(
        &specs,
        &expect![[r#"
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db-1.example.com."}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"203.0.113.5"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"2001:db8::5"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"[2001:db8::5]"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db:3306"}}}: Invalid, spec.database.external.host: db:3306 is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"203.0.113.5:3306"}}}: Invalid, spec.database.external.host: 203.0.113.5:3306 is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"[2001:db8::5]:3306"}}}: Invalid, spec.database.external.host: [2001:db8::5]:3306 is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"[203.0.113.5]"}}}: Invalid, spec.database.external.host: [203.0.113.5] is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"203.0.113.500"}}}: Invalid, spec.database.external.host: 203.0.113.500 is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"2001:db8::g"}}}: Invalid, spec.database.external.host: 2001:db8::g is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"mysql://db"}}}: Invalid, spec.database.external.host: mysql://db is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"/run/mysqld.sock"}}}: Invalid, spec.database.external.host: /run/mysqld.sock is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db..example.com"}}}: Invalid, spec.database.external.host: db..example.com is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"-db"}}}: Invalid, spec.database.external.host: -db is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"a_b"}}}: Invalid, spec.database.external.host: a_b is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":" db"}}}: Invalid, spec.database.external.host:  db is neither a DNS name nor an IP address: write an IPv6 address in brackets, as in [2001:db8::5], and give the port in external.port
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"localhost"}}}: Invalid, spec.database.external.host: localhost stands for a socket, which the Pods of the site lack: write 127.0.0.1 for a database in the Pod
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"LocalHost"}}}: Invalid, spec.database.external.host: localhost stands for a socket, which the Pods of the site lack: write 127.0.0.1 for a database in the Pod
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"127.0.0.1"}}}: accepted
        "#]],
    );
}

#[test]
fn a_data_source_has_a_name_and_its_passwords() {
    let source =
        |name: &str| json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": name } });
    let database = |managed: Value| json!({ "database": { "managed": managed } });
    let own = json!({ "name": "s" });
    check(
        &[
            json!({ "code": { "persistentVolumeClaim": source("many") } }),
            json!({ "code": { "persistentVolumeClaim": source("") } }),
            database(json!({ "storage": source("many"), "credentialsSecretRef": own })),
            database(json!({ "storage": source("many") })),
            database(json!({ "storage": source(""), "credentialsSecretRef": own })),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}: accepted
            {"code":{"persistentVolumeClaim":{"dataSource":{"kind":"PersistentVolumeClaim","name":""}}}}: rejected, spec.code.persistentVolumeClaim.dataSource.name: "" is shorter than 1 character
            {"database":{"managed":{"credentialsSecretRef":{"name":"s"},"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}}: accepted
            {"database":{"managed":{"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":"many"}}}}}: rejected, spec.database.managed: a dataSource needs database.managed.credentialsSecretRef with the passwords of its data
            {"database":{"managed":{"credentialsSecretRef":{"name":"s"},"storage":{"dataSource":{"kind":"PersistentVolumeClaim","name":""}}}}}: rejected, spec.database.managed.storage.dataSource.name: "" is shorter than 1 character
        "#]],
    );
}

#[test]
fn a_claim_lets_pods_write() {
    let code =
        |modes: &[&str]| json!({ "code": { "persistentVolumeClaim": { "accessModes": modes } } });
    check(
        &[
            code(&["ReadOnlyMany"]),
            code(&["ReadOnlyMany", "ReadOnlyMany"]),
            code(&["ReadWriteOnce", "ReadOnlyMany"]),
            code(&["ReadOnlyMany", "ReadWriteMany"]),
            json!({ "database": { "managed": { "storage": { "accessModes": ["ReadOnlyMany"] } } } }),
            json!({ "code": { "persistentVolumeClaim": { "existingClaim": "read" } } }),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany"]}}}: rejected, spec.code.persistentVolumeClaim: accessModes needs a mode that lets Pods write: ReadOnlyMany alone does not
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany","ReadOnlyMany"]}}}: rejected, spec.code.persistentVolumeClaim: accessModes needs a mode that lets Pods write: ReadOnlyMany alone does not
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce","ReadOnlyMany"]}}}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany","ReadWriteMany"]}}}: accepted
            {"database":{"managed":{"storage":{"accessModes":["ReadOnlyMany"]}}}}: rejected, spec.database.managed.storage: accessModes needs a mode that lets Pods write: ReadOnlyMany alone does not
            {"code":{"persistentVolumeClaim":{"existingClaim":"read"}}}: Invalid, spec.code.persistentVolumeClaim.existingClaim: claim read can only be read, and the site writes to it: name another
        "#]],
    );
}

#[test]
fn a_path_is_one_that_the_image_serves() {
    let routes = json!([{ "domain": "a.org" }, { "domain": "www.a.org", "path": "/blog" }]);
    let with = |image: &str| json!({ "routes": routes, "image": image });
    check(
        &[
            json!({ "routes": routes }),
            with("wordpress:6.9"),
            with("docker.io/library/wordpress:6.9"),
            with("registry.example.com/team/wordpress:6.9"),
            with("mine"),
        ],
        &expect![[r#"
            {"routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image wordpress:7.1-apache serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image wordpress:6.9 serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"docker.io/library/wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: Invalid, spec.routes[1].path: the image docker.io/library/wordpress:6.9 serves the root of a domain and not /blog: remove the path, or give spec.image an image that serves it
            {"image":"registry.example.com/team/wordpress:6.9","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: accepted
            {"image":"mine","routes":[{"domain":"a.org"},{"domain":"www.a.org","path":"/blog"}]}: accepted
        "#]],
    );
}

#[test]
fn a_page_of_readiness_is_a_path() {
    let path = |path: &str| json!({ "readinessPath": path });
    check(
        &[
            path("/"),
            path("/wp-login.php?a=b"),
            path(""),
            path("a"),
            path("/a b"),
            path("/#a"),
        ],
        &expect![[r#"
            {"readinessPath":"/"}: accepted
            {"readinessPath":"/wp-login.php?a=b"}: accepted
            {"readinessPath":""}: rejected, spec.readinessPath: "" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"; spec.readinessPath: "" is shorter than 1 character
            {"readinessPath":"a"}: rejected, spec.readinessPath: "a" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
            {"readinessPath":"/a b"}: rejected, spec.readinessPath: "/a b" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
            {"readinessPath":"/#a"}: rejected, spec.readinessPath: "/#a" does not match "^/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*$"
        "#]],
    );
}

#[test]
fn a_spec_is_required_and_may_be_empty() {
    let mut none = parent("shop", &json!({}));
    none.as_object_mut().unwrap().remove("spec");
    assert_eq!(verdict(&none), "rejected, spec: is required");
    let code = json!({ "hostPath": { "path": "/" } });
    check(
        &[
            json!({}),
            json!({ "size": 3 }),
            json!({ "code": code }),
            json!({ "resources": { "claims": [{ "name": "gpu" }] } }),
            json!({ "database": { "managed": { "storage": { "existingClaim": "many" } } } }),
        ],
        &expect![[r#"
            {}: accepted
            {"size":3}: accepted without spec.size
            {"code":{"hostPath":{"path":"/"}}}: accepted without spec.code.hostPath
            {"resources":{"claims":[{"name":"gpu"}]}}: accepted without spec.resources.claims
            {"database":{"managed":{"storage":{"existingClaim":"many"}}}}: accepted without spec.database.managed.storage.existingClaim
        "#]],
    );
}

#[test]
fn a_root_password_has_one_spelling_and_no_character_of_sql() {
    let both =
        |first: &str, other: &str| json!({ "sqlrootpassword": first, "sqlRootPassword": other });
    let passwords = ["", "it's", "a\\b", "a\"b", "a\nb", "#!%&()*+"];
    let mut specs: Vec<Value> = passwords
        .map(|password| json!({ "sqlrootpassword": password }))
        .to_vec();
    specs.extend(passwords.map(|password| json!({ "sqlRootPassword": password })));
    let external = json!({ "external": { "host": "db", "credentialsSecretRef": { "name": "s" } } });
    let own = json!({ "managed": { "credentialsSecretRef": { "name": "s" } } });
    specs.extend([
        both("abc", "abc"),
        both("abc", "other"),
        json!({ "sqlrootpassword": "abc", "database": external }),
        json!({ "sqlRootPassword": "abc", "database": external }),
        json!({ "sqlrootpassword": "abc", "database": own }),
        json!({ "sqlRootPassword": "abc", "database": own }),
        json!({ "sqlrootpassword": "abc", "database": { "managed": {} } }),
    ]);
    check(
        &specs,
        &expect![[r##"
        {"sqlrootpassword":""}: rejected, spec.sqlrootpassword: "" is shorter than 1 character
        {"sqlrootpassword":"it's"}: rejected, spec.sqlrootpassword: the root password must not contain quotes, backslashes or control characters
        {"sqlrootpassword":"a\\b"}: rejected, spec.sqlrootpassword: the root password must not contain quotes, backslashes or control characters
        {"sqlrootpassword":"a\"b"}: rejected, spec.sqlrootpassword: the root password must not contain quotes, backslashes or control characters
        {"sqlrootpassword":"a\nb"}: rejected, spec.sqlrootpassword: the root password must not contain quotes, backslashes or control characters
        {"sqlrootpassword":"#!%&()*+"}: accepted
        {"sqlRootPassword":""}: rejected, spec.sqlRootPassword: "" is shorter than 1 character
        {"sqlRootPassword":"it's"}: rejected, spec.sqlRootPassword: the root password must not contain quotes, backslashes or control characters
        {"sqlRootPassword":"a\\b"}: rejected, spec.sqlRootPassword: the root password must not contain quotes, backslashes or control characters
        {"sqlRootPassword":"a\"b"}: rejected, spec.sqlRootPassword: the root password must not contain quotes, backslashes or control characters
        {"sqlRootPassword":"a\nb"}: rejected, spec.sqlRootPassword: the root password must not contain quotes, backslashes or control characters
        {"sqlRootPassword":"#!%&()*+"}: accepted
        {"sqlRootPassword":"abc","sqlrootpassword":"abc"}: accepted
        {"sqlRootPassword":"other","sqlrootpassword":"abc"}: rejected, spec: sqlrootpassword and sqlRootPassword are two spellings of one field and must not differ
        {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}},"sqlrootpassword":"abc"}: rejected, spec: sqlrootpassword has no use with an external database
        {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}},"sqlRootPassword":"abc"}: rejected, spec: sqlrootpassword has no use with an external database
        {"database":{"managed":{"credentialsSecretRef":{"name":"s"}}},"sqlrootpassword":"abc"}: rejected, spec: give either sqlrootpassword or database.managed.credentialsSecretRef
        {"database":{"managed":{"credentialsSecretRef":{"name":"s"}}},"sqlRootPassword":"abc"}: rejected, spec: give either sqlrootpassword or database.managed.credentialsSecretRef
        {"database":{"managed":{}},"sqlrootpassword":"abc"}: accepted
    "##]],
    );
    // Not in the table, because an editor does not show it.
    let delete = verdict(&parent("shop", &json!({ "sqlrootpassword": "a\u{7f}" })));
    assert!(
        delete.ends_with("quotes, backslashes or control characters"),
        "{delete}"
    );
    let longest = |length: usize| json!({ "sqlrootpassword": "a".repeat(length) });
    assert_eq!(verdict(&parent("shop", &longest(128))), "accepted");
    let verdict = verdict(&parent("shop", &longest(129)));
    assert!(
        verdict.ends_with("is longer than 128 characters"),
        "{verdict}"
    );
}

#[test]
fn a_database_is_managed_or_external() {
    let external = |more: Value| {
        let mut external = json!({ "host": "db", "credentialsSecretRef": { "name": "s" } });
        for (field, value) in more.as_object().unwrap() {
            external[field] = value.clone();
        }
        json!({ "database": { "external": external } })
    };
    let database = |database: Value| json!({ "database": database });
    let both = json!({
        "managed": {}, "external": { "host": "db", "credentialsSecretRef": { "name": "s" } },
    });
    check(
        &[
            database(json!({})),
            database(both),
            external(json!({})),
            external(json!({ "port": 1 })),
            external(json!({ "port": 65535 })),
            external(json!({ "port": 0 })),
            external(json!({ "port": 65536 })),
            external(json!({ "host": "" })),
            external(json!({ "databaseName": "a-b" })),
            database(json!({ "external": { "host": "db" } })),
            database(json!({ "external": { "credentialsSecretRef": { "name": "s" } } })),
            database(json!({ "external": { "host": "db", "credentialsSecretRef": {} } })),
            database(json!({ "managed": { "startupSeconds": 59 } })),
            database(json!({ "managed": { "startupSeconds": 60 } })),
            database(json!({ "managed": { "startupSeconds": 86400 } })),
            database(json!({ "managed": { "startupSeconds": 86401 } })),
            database(json!({ "managed": { "startupSeconds": "10m" } })),
            database(json!({ "managed": { "image": "my sql" } })),
            database(json!({ "tablePrefix": "wp_2" })),
            database(json!({ "tablePrefix": "wp-" })),
            database(json!({ "tablePrefix": "" })),
        ],
        &expect![[r#"
            {"database":{}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"},"managed":{}}}: rejected, spec.database: choose one of database.managed and database.external
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db","port":1}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db","port":65535}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db","port":0}}}: rejected, spec.database.external.port: 0 is less than the minimum of 1
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db","port":65536}}}: rejected, spec.database.external.port: 65536 is greater than the maximum of 65535
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":""}}}: rejected, spec.database.external.host: "" is shorter than 1 character
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"databaseName":"a-b","host":"db"}}}: rejected, spec.database.external.databaseName: "a-b" does not match "^[A-Za-z0-9_]{1,64}$"
            {"database":{"external":{"host":"db"}}}: rejected, spec.database.external.credentialsSecretRef: is required
            {"database":{"external":{"credentialsSecretRef":{"name":"s"}}}}: rejected, spec.database.external.host: is required
            {"database":{"external":{"credentialsSecretRef":{},"host":"db"}}}: rejected, spec.database.external.credentialsSecretRef.name: is required
            {"database":{"managed":{"startupSeconds":59}}}: rejected, spec.database.managed.startupSeconds: 59 is less than the minimum of 60
            {"database":{"managed":{"startupSeconds":60}}}: accepted
            {"database":{"managed":{"startupSeconds":86400}}}: accepted
            {"database":{"managed":{"startupSeconds":86401}}}: rejected, spec.database.managed.startupSeconds: 86401 is greater than the maximum of 86400
            {"database":{"managed":{"startupSeconds":"10m"}}}: rejected, spec.database.managed.startupSeconds: "10m" is not of type "integer"
            {"database":{"managed":{"image":"my sql"}}}: rejected, spec.database.managed.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"database":{"tablePrefix":"wp_2"}}: accepted
            {"database":{"tablePrefix":"wp-"}}: rejected, spec.database.tablePrefix: "wp-" does not match "^[A-Za-z0-9_]{1,32}$"
            {"database":{"tablePrefix":""}}: rejected, spec.database.tablePrefix: "" does not match "^[A-Za-z0-9_]{1,32}$"
        "#]],
    );
}

#[test]
fn a_managed_database_gets_a_schema_and_keys_of_its_own() {
    let managed = |managed: Value| json!({ "database": { "managed": managed } });
    check(
        &[
            managed(json!({ "databaseName": "Shop_1" })),
            managed(json!({ "databaseName": "" })),
            managed(json!({ "databaseName": "mysql" })),
            managed(json!({ "databaseName": "Information_Schema" })),
            managed(json!({ "databaseName": "mysql1" })),
            managed(json!({ "databaseName": "a b" })),
            managed(json!({ "credentialsSecretRef": { "name": "s", "usernameKey": "password" } })),
        ],
        &expect![[r#"
            {"database":{"managed":{"databaseName":"Shop_1"}}}: accepted
            {"database":{"managed":{"databaseName":""}}}: rejected, spec.database.managed.databaseName: "" does not match "^[A-Za-z0-9_]{1,64}$"
            {"database":{"managed":{"databaseName":"mysql"}}}: rejected, spec.database.managed.databaseName: databaseName is a schema of the server itself: give the site a schema of its own
            {"database":{"managed":{"databaseName":"Information_Schema"}}}: rejected, spec.database.managed.databaseName: databaseName is a schema of the server itself: give the site a schema of its own
            {"database":{"managed":{"databaseName":"mysql1"}}}: accepted
            {"database":{"managed":{"databaseName":"a b"}}}: rejected, spec.database.managed.databaseName: "a b" does not match "^[A-Za-z0-9_]{1,64}$"
            {"database":{"managed":{"credentialsSecretRef":{"name":"s","usernameKey":"password"}}}}: rejected, spec.database.managed.credentialsSecretRef: usernameKey must be another key than those of the passwords
        "#]],
    );
}

#[test]
fn replicas_share_their_files() {
    let code = |replicas: i32, claim: Value| json!({ "replicas": replicas, "code": { "persistentVolumeClaim": claim } });
    check(
        &[
            json!({ "replicas": 0 }),
            json!({ "replicas": 1 }),
            json!({ "replicas": 2 }),
            json!({ "replicas": -1 }),
            json!({ "replicas": "2" }),
            json!({ "replicas": 2, "code": {} }),
            code(2, json!({})),
            code(2, json!({ "accessModes": ["ReadOnlyMany"] })),
            code(2, json!({ "accessModes": ["ReadWriteMany"] })),
            code(
                50,
                json!({ "accessModes": ["ReadWriteOnce", "ReadWriteMany"] }),
            ),
            code(51, json!({ "accessModes": ["ReadWriteMany"] })),
            code(2, json!({ "existingClaim": "many" })),
            code(2, json!({ "existingClaim": "one" })),
            code(1, json!({ "existingClaim": "one" })),
        ],
        &expect![[r#"
            {"replicas":0}: accepted
            {"replicas":1}: accepted
            {"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"replicas":-1}: rejected, spec.replicas: -1 is less than the minimum of 0
            {"replicas":"2"}: rejected, spec.replicas: "2" is not of type "integer"
            {"code":{},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"code":{"persistentVolumeClaim":{}},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadOnlyMany"]}},"replicas":2}: rejected, spec: more than one replica needs code and media on ReadWriteMany claims, git, emptyDir or object storage; spec.code.persistentVolumeClaim: accessModes needs a mode that lets Pods write: ReadOnlyMany alone does not
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"replicas":2}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce","ReadWriteMany"]}},"replicas":50}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"replicas":51}: rejected, spec.replicas: 51 is greater than the maximum of 50
            {"code":{"persistentVolumeClaim":{"existingClaim":"many"}},"replicas":2}: accepted
            {"code":{"persistentVolumeClaim":{"existingClaim":"one"}},"replicas":2}: Invalid, spec.code.persistentVolumeClaim.existingClaim: claim one has no access mode ReadWriteMany
            {"code":{"persistentVolumeClaim":{"existingClaim":"one"}},"replicas":1}: accepted
        "#]],
    );
}

#[test]
fn a_disruption_budget_lets_some_pods_go() {
    let budget = |replicas: i32, mut budget: Value| {
        budget["enabled"] = json!(true);
        let many = json!({ "persistentVolumeClaim": { "accessModes": ["ReadWriteMany"] } });
        json!({ "replicas": replicas, "code": many, "podDisruptionBudget": budget })
    };
    check(
        &[
            json!({ "podDisruptionBudget": {} }),
            json!({ "podDisruptionBudget": { "enabled": true, "minAvailable": 1 } }),
            budget(3, json!({ "minAvailable": 2 })),
            budget(3, json!({ "minAvailable": "50%" })),
            budget(3, json!({ "minAvailable": "66%" })),
            budget(3, json!({ "minAvailable": "90%" })),
            json!({ "podDisruptionBudget": { "enabled": true, "minAvailable": "50%" } }),
            budget(3, json!({ "maxUnavailable": 1 })),
            budget(3, json!({ "maxUnavailable": "100%" })),
            budget(0, json!({ "minAvailable": 1 })),
            budget(3, json!({})),
            budget(3, json!({ "minAvailable": 1, "maxUnavailable": 1 })),
            budget(2, json!({ "minAvailable": 2 })),
            budget(3, json!({ "maxUnavailable": 0 })),
            budget(3, json!({ "maxUnavailable": "0%" })),
            budget(3, json!({ "maxUnavailable": "-5%" })),
            budget(3, json!({ "maxUnavailable": "101%" })),
            budget(3, json!({ "minAvailable": "100%" })),
            budget(3, json!({ "minAvailable": "half" })),
            budget(3, json!({ "minAvailable": "0x1" })),
            budget(3, json!({ "minAvailable": "2" })),
            budget(3, json!({ "minAvailable": -1 })),
        ],
        &expect![[r#"
            {"podDisruptionBudget":{}}: accepted
            {"podDisruptionBudget":{"enabled":true,"minAvailable":1}}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":2},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"66%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"90%"},"replicas":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"podDisruptionBudget":{"enabled":true,"minAvailable":"50%"}}: rejected, spec: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":1},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"100%"},"replicas":3}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":1},"replicas":0}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":1,"minAvailable":1},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget needs exactly one of minAvailable and maxUnavailable
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":2},"replicas":2}: rejected, spec: podDisruptionBudget.minAvailable must be lower than the number of replicas
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":0},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"0%"},"replicas":3}: rejected, spec.podDisruptionBudget: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"-5%"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"maxUnavailable":"101%"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"100%"},"replicas":3}: rejected, spec: podDisruptionBudget would block every eviction
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"half"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"0x1"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":"2"},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}},"podDisruptionBudget":{"enabled":true,"minAvailable":-1},"replicas":3}: rejected, spec.podDisruptionBudget: minAvailable and maxUnavailable must be a number or a percentage
        "#]],
    );
}

#[test]
fn routes_are_addresses_of_the_site() {
    let route = |domain: &str, path: &str| json!({ "image": "mine", "routes": [{ "domain": domain, "path": path }] });
    let pair = |first: &str, other: &str| {
        let paths = [first, other].map(|path| json!({ "domain": "a.org", "path": path }));
        json!({ "image": "mine", "routes": paths })
    };
    check(
        &[
            json!({ "routes": [] }),
            json!({ "routes": [{ "path": "/" }] }),
            json!({ "routes": [{ "domain": "a.org", "path": "/a" }] }),
            json!({ "routes": [{ "domain": "a.org" }, { "domain": "a.org", "path": "/a" }] }),
            route("a.org", "/"),
            route("localhost", "/a/b.c~d/"),
            route("*.a.org", "/"),
            route("Shop.org", "/"),
            route("a.org/x", "/"),
            route("a..org", "/"),
            route("-a.org", "/"),
            route("a.org');phpinfo();//", "/"),
            route("", "/"),
            route("a.org", "x"),
            route("a.org", ""),
            route("a.org", "//"),
            route("a.org", "/a?b"),
            pair("/x", "/x"),
            pair("/x", "/x/"),
        ],
        &expect![[r#"
            {"routes":[]}: accepted
            {"routes":[{"path":"/"}]}: rejected, spec.routes[0].domain: is required
            {"routes":[{"domain":"a.org","path":"/a"}]}: Invalid, spec.routes[0].path: the image wordpress:7.1-apache serves the root of a domain and not /a: remove the path, or give spec.image an image that serves it
            {"routes":[{"domain":"a.org"},{"domain":"a.org","path":"/a"}]}: Invalid, spec.routes[1].path: the image wordpress:7.1-apache serves the root of a domain and not /a: remove the path, or give spec.image an image that serves it
            {"image":"mine","routes":[{"domain":"a.org","path":"/"}]}: accepted
            {"image":"mine","routes":[{"domain":"localhost","path":"/a/b.c~d/"}]}: accepted
            {"image":"mine","routes":[{"domain":"*.a.org","path":"/"}]}: rejected, spec.routes[0].domain: "*.a.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"Shop.org","path":"/"}]}: rejected, spec.routes[0].domain: "Shop.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a.org/x","path":"/"}]}: rejected, spec.routes[0].domain: "a.org/x" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a..org","path":"/"}]}: rejected, spec.routes[0].domain: "a..org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"-a.org","path":"/"}]}: rejected, spec.routes[0].domain: "-a.org" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"a.org');phpinfo();//","path":"/"}]}: rejected, spec.routes[0].domain: "a.org');phpinfo();//" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
            {"image":"mine","routes":[{"domain":"","path":"/"}]}: rejected, spec.routes[0].domain: "" does not match "^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?$"; spec.routes[0].domain: "" is shorter than 1 character
            {"image":"mine","routes":[{"domain":"a.org","path":"x"}]}: rejected, spec.routes[0].path: "x" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":""}]}: rejected, spec.routes[0].path: "" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"//"}]}: rejected, spec.routes[0].path: "//" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"/a?b"}]}: rejected, spec.routes[0].path: "/a?b" does not match "^/([A-Za-z0-9._~-]+/)*[A-Za-z0-9._~-]*$"
            {"image":"mine","routes":[{"domain":"a.org","path":"/x"},{"domain":"a.org","path":"/x"}]}: rejected, spec.routes[1]: {"domain":"a.org","path":"/x"} is in the list twice
            {"image":"mine","routes":[{"domain":"a.org","path":"/x"},{"domain":"a.org","path":"/x/"}]}: accepted
        "#]],
    );
    let many = |count: usize| {
        let routes = (0..count).map(|number| json!({ "domain": format!("{number}.org") }));
        verdict(&parent(
            "shop",
            &json!({ "routes": routes.collect::<Value>() }),
        ))
    };
    assert_eq!(many(64), "accepted");
    assert_eq!(
        many(65),
        "rejected, spec.routes: the value has more than 64 items"
    );
}

#[test]
fn a_parent_is_at_most_256_kib_large() {
    let env = |count: usize, length: usize| {
        let variable =
            |number| json!({ "name": format!("APP_{number}"), "value": "x".repeat(length) });
        let env: Vec<Value> = (0..count).map(variable).collect();
        verdict(&parent("shop", &json!({ "env": env })))
    };
    let problem = env(64, 4096);
    assert!(
        problem.starts_with("Invalid, the object is too large: "),
        "{problem}"
    );
    assert!(problem.contains("; spec.env has "), "{problem}");
    assert_eq!(env(60, 4096), "accepted");
    let longer = env(1, 4097);
    assert!(
        longer.starts_with("rejected, spec.env[0].value: "),
        "{longer}"
    );
}

#[test]
fn tls_and_the_ingress_need_a_route() {
    let routes = json!([{ "domain": "a.org" }]);
    check(
        &[
            json!({ "tlsSecretRef": "s" }),
            json!({ "tlsSecretRef": "s", "routes": [] }),
            json!({ "tlsSecretRef": "s", "routes": routes }),
            json!({ "tlsSecretRef": "", "routes": routes }),
            json!({ "ingress": { "enabled": true } }),
            json!({ "ingress": { "enabled": true }, "routes": [] }),
            json!({ "ingress": { "enabled": true }, "routes": routes }),
            json!({ "ingress": { "enabled": false } }),
            json!({ "ingress": { "className": "" } }),
            json!({ "externalScheme": "https" }),
            json!({ "externalScheme": "ftp" }),
        ],
        &expect![[r#"
            {"tlsSecretRef":"s"}: rejected, spec: tlsSecretRef needs at least one route
            {"routes":[],"tlsSecretRef":"s"}: rejected, spec: tlsSecretRef needs at least one route
            {"routes":[{"domain":"a.org"}],"tlsSecretRef":"s"}: accepted
            {"routes":[{"domain":"a.org"}],"tlsSecretRef":""}: rejected, spec.tlsSecretRef: "" is shorter than 1 character
            {"ingress":{"enabled":true}}: rejected, spec: ingress.enabled needs at least one route
            {"ingress":{"enabled":true},"routes":[]}: rejected, spec: ingress.enabled needs at least one route
            {"ingress":{"enabled":true},"routes":[{"domain":"a.org"}]}: accepted
            {"ingress":{"enabled":false}}: accepted
            {"ingress":{"className":""}}: rejected, spec.ingress.className: "" is shorter than 1 character
            {"externalScheme":"https"}: accepted
            {"externalScheme":"ftp"}: rejected, spec.externalScheme: "ftp" is not one of "http" or "https"
        "#]],
    );
}

#[test]
fn a_port_of_nodes_needs_a_type_of_the_service() {
    let service = |service: Value| json!({ "service": service });
    check(
        &[
            service(json!({ "type": "NodePort" })),
            service(json!({ "type": "ExternalName" })),
            service(json!({ "nodePort": 30080 })),
            service(json!({ "nodePort": 30080, "type": "ClusterIP" })),
            // The configuration decides if a parent may choose a port.
            service(json!({ "nodePort": 30080, "type": "NodePort" })),
            service(json!({ "nodePort": 30080, "type": "LoadBalancer" })),
            service(json!({ "nodePort": 0, "type": "NodePort" })),
            service(json!({ "nodePort": 65536, "type": "NodePort" })),
            json!({ "containerPort": 1 }),
            json!({ "containerPort": 65535 }),
            json!({ "containerPort": 0 }),
            json!({ "containerPort": 65536 }),
        ],
        &expect![[r#"
            {"service":{"type":"NodePort"}}: accepted
            {"service":{"type":"ExternalName"}}: rejected, spec.service.type: "ExternalName" is not one of "ClusterIP", "NodePort" or "LoadBalancer"
            {"service":{"nodePort":30080}}: rejected, spec.service: service.nodePort needs service.type NodePort or LoadBalancer
            {"service":{"nodePort":30080,"type":"ClusterIP"}}: rejected, spec.service: service.nodePort needs service.type NodePort or LoadBalancer
            {"service":{"nodePort":30080,"type":"NodePort"}}: Invalid, spec.service.type: tenants.serviceTypes of the plugin's configuration does not list NodePort
            {"service":{"nodePort":30080,"type":"LoadBalancer"}}: Invalid, spec.service.type: tenants.serviceTypes of the plugin's configuration does not list LoadBalancer
            {"service":{"nodePort":0,"type":"NodePort"}}: rejected, spec.service.nodePort: 0 is less than the minimum of 1
            {"service":{"nodePort":65536,"type":"NodePort"}}: rejected, spec.service.nodePort: 65536 is greater than the maximum of 65535
            {"containerPort":1}: accepted
            {"containerPort":65535}: accepted
            {"containerPort":0}: rejected, spec.containerPort: 0 is less than the minimum of 1
            {"containerPort":65536}: rejected, spec.containerPort: 65536 is greater than the maximum of 65535
        "#]],
    );
}

#[test]
fn variables_and_metadata_leave_the_plugins_own_alone() {
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "x" }] });
    let metadata = |block: &str, key: &str| json!({ "podMetadata": { block: { key: "x" } } });
    check(
        &[
            variable("APP_OTHER"),
            variable("WORDPRESS_DB_HOST"),
            variable("WORDPRESS_CONFIG_EXTRA"),
            json!({ "env": [{ "name": "A" }, { "name": "A" }] }),
            json!({ "env": [{ "value": "x" }] }),
            metadata("labels", "app.kubernetes.io/name"),
            metadata("labels", "example.com/a"),
            metadata("annotations", "example.com/a"),
            metadata("annotations", "app.kubernetes.io/name"),
            json!({ "podMetadata": { "labels": { "a": "b c" } } }),
        ],
        &expect![[r#"
            {"env":[{"name":"APP_OTHER","value":"x"}]}: accepted
            {"env":[{"name":"WORDPRESS_DB_HOST","value":"x"}]}: accepted
            {"env":[{"name":"WORDPRESS_CONFIG_EXTRA","value":"x"}]}: rejected, spec: use configExtra instead of the variable WORDPRESS_CONFIG_EXTRA
            {"env":[{"name":"A"},{"name":"A"}]}: rejected, spec.env[1]: {"name":"A"} is in the list twice
            {"env":[{"value":"x"}]}: rejected, spec.env[0].name: is required
            {"podMetadata":{"labels":{"app.kubernetes.io/name":"x"}}}: rejected, spec.podMetadata: podMetadata must not use the prefixes app.kubernetes.io/ (labels) and example.com/ (annotations)
            {"podMetadata":{"labels":{"example.com/a":"x"}}}: Invalid, spec.podMetadata.labels: tenants.podMetadata.labels of the plugin's configuration does not list example.com/a
            {"podMetadata":{"annotations":{"example.com/a":"x"}}}: rejected, spec.podMetadata: podMetadata must not use the prefixes app.kubernetes.io/ (labels) and example.com/ (annotations)
            {"podMetadata":{"annotations":{"app.kubernetes.io/name":"x"}}}: Invalid, spec.podMetadata.annotations: tenants.podMetadata.annotations of the plugin's configuration does not list app.kubernetes.io/name
            {"podMetadata":{"labels":{"a":"b c"}}}: Invalid, spec.podMetadata.labels.a: "b c" is not a label value: write at most 63 letters, digits, '-', '_' or '.', or nothing
        "#]],
    );
}

#[test]
fn lists_and_texts_have_bounds() {
    let keys = |count: usize| -> Value {
        (0..count)
            .map(|number| (format!("k{number}"), "x"))
            .collect()
    };
    let entries = |count: usize| -> Value {
        (0..count)
            .map(|number| json!({ "name": format!("A{number}") }))
            .collect()
    };
    let sources = |count: usize| vec![json!({ "secretRef": { "name": "s" } }); count];
    for (spec, field) in [
        (json!({ "phpConfig": "a".repeat(16385) }), "phpConfig"),
        (json!({ "configExtra": "a".repeat(16385) }), "configExtra"),
        (
            json!({ "database": { "managed": { "config": "a".repeat(16385) } } }),
            "database.managed.config",
        ),
        (json!({ "env": entries(65) }), "env"),
        (json!({ "envFrom": sources(65) }), "envFrom"),
        (
            json!({ "imagePullSecrets": entries(9) }),
            "imagePullSecrets",
        ),
        (
            json!({ "podMetadata": { "labels": keys(33) } }),
            "podMetadata.labels",
        ),
        (
            json!({ "service": { "annotations": keys(33) } }),
            "service.annotations",
        ),
        (
            json!({ "ingress": { "annotations": keys(33) } }),
            "ingress.annotations",
        ),
        (json!({ "tlsSecretRef": "a".repeat(254) }), "tlsSecretRef"),
        (json!({ "image": "a".repeat(513) }), "image"),
    ] {
        let verdict = verdict(&parent("shop", &spec));
        let expected = format!("rejected, spec.{field}: ");
        assert!(verdict.starts_with(&expected), "{field}: {verdict}");
    }
    let fits = json!({
        "phpConfig": "a".repeat(16384), "configExtra": "a".repeat(16384), "env": entries(64),
        "envFrom": sources(64), "image": "a".repeat(255),
    });
    assert_eq!(admitted(&parent("shop", &fits)).err(), None);
}

#[test]
fn texts_have_a_form() {
    let image = |image: &str| json!({ "image": image });
    check(
        &[
            image("registry:5000/wordpress"),
            image(&format!(
                "registry:5000/a/wordpress:7.1@sha256:{}",
                "0".repeat(64)
            )),
            image("wordpress:"),
            image("wordpress@sha256:zz"),
            json!({ "database": { "managed": { "image": "mysql:" } } }),
            image(""),
            image("-wordpress"),
            image("a b"),
            json!({ "imagePullPolicy": "Always" }),
            json!({ "imagePullPolicy": "Sometimes" }),
            json!({ "deletionPolicy": "Delete" }),
            json!({ "deletionPolicy": "Keep" }),
            json!({ "allowOpenInstaller": true }),
            json!({ "allowOpenInstaller": "yes" }),
        ],
        &expect![[r#"
            {"image":"registry:5000/wordpress"}: accepted
            {"image":"registry:5000/a/wordpress:7.1@sha256:0000000000000000000000000000000000000000000000000000000000000000"}: accepted
            {"image":"wordpress:"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":"wordpress@sha256:zz"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"database":{"managed":{"image":"mysql:"}}}: rejected, spec.database.managed.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":""}: rejected, spec.image: "" is shorter than 1 character
            {"image":"-wordpress"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"image":"a b"}: rejected, spec.image: must be an image reference such as registry.example.com:5000/team/app:1.2, with the path in lower case and a digest as @sha256:<64 hexadecimal digits>
            {"imagePullPolicy":"Always"}: accepted
            {"imagePullPolicy":"Sometimes"}: rejected, spec.imagePullPolicy: "Sometimes" is not one of "Always", "IfNotPresent" or "Never"
            {"deletionPolicy":"Delete"}: accepted
            {"deletionPolicy":"Keep"}: rejected, spec.deletionPolicy: "Keep" is not one of "Retain" or "Delete"
            {"allowOpenInstaller":true}: accepted
            {"allowOpenInstaller":"yes"}: rejected, spec.allowOpenInstaller: "yes" is not of type "boolean"
        "#]],
    );
}

#[test]
fn quantities_parse_and_requests_stay_below_limits() {
    let site = |requests: Value, limits: Value| json!({ "resources": { "requests": requests, "limits": limits } });
    let database = |block: Value| json!({ "database": { "managed": { "resources": block } } });
    check(
        &[
            site(json!({ "cpu": "100m" }), json!({ "cpu": 1 })),
            site(json!({ "cpu": 1 }), json!({ "cpu": 1 })),
            site(json!({ "cpu": "lots" }), json!({})),
            site(json!({}), json!({ "memory": "1 Gi" })),
            site(json!({ "memory": "2Gi" }), json!({ "memory": "1Gi" })),
            database(json!({ "limits": { "cpu": "lots" } })),
            database(json!({ "requests": { "cpu": 2 }, "limits": { "cpu": "1500m" } })),
        ],
        &expect![[r#"
            {"resources":{"limits":{"cpu":1},"requests":{"cpu":"100m"}}}: accepted
            {"resources":{"limits":{"cpu":1},"requests":{"cpu":1}}}: accepted
            {"resources":{"limits":{},"requests":{"cpu":"lots"}}}: Invalid, spec.resources.requests.cpu: "lots" is not a quantity
            {"resources":{"limits":{"memory":"1 Gi"},"requests":{}}}: Invalid, spec.resources.limits.memory: "1 Gi" is not a quantity
            {"resources":{"limits":{"memory":"1Gi"},"requests":{"memory":"2Gi"}}}: Invalid, spec.resources.memory: request 2Gi exceeds limit 1Gi
            {"database":{"managed":{"resources":{"limits":{"cpu":"lots"}}}}}: Invalid, spec.database.managed.resources.limits.cpu: "lots" is not a quantity
            {"database":{"managed":{"resources":{"limits":{"cpu":"1500m"},"requests":{"cpu":2}}}}}: Invalid, spec.database.managed.resources.cpu: request 2 exceeds limit 1500m
        "#]],
    );
}

#[test]
fn a_claim_has_a_size_and_modes() {
    let code = |claim: Value| json!({ "code": { "persistentVolumeClaim": claim } });
    let data = |claim: Value| json!({ "database": { "managed": { "storage": claim } } });
    check(
        &[
            code(json!({ "size": 1 })),
            code(json!({ "size": "5Gi", "storageClassName": "fast" })),
            code(json!({ "size": "0" })),
            code(json!({ "size": 0 })),
            code(json!({ "size": "-1Gi" })),
            code(json!({ "size": "10 Gi" })),
            code(json!({ "size": "" })),
            code(json!({ "accessModes": [] })),
            code(json!({ "accessModes": ["Sometimes"] })),
            code(json!({ "existingClaim": "" })),
            data(json!({ "size": "0" })),
            data(json!({ "size": "10 Gi" })),
            data(json!({ "accessModes": [] })),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"size":1}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"5Gi","storageClassName":"fast"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"0"}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":0}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":"-1Gi"}}}: rejected, spec.code.persistentVolumeClaim: size must be greater than zero
            {"code":{"persistentVolumeClaim":{"size":"10 Gi"}}}: rejected, spec.code.persistentVolumeClaim: size must be a quantity, such as 10Gi
            {"code":{"persistentVolumeClaim":{"size":""}}}: rejected, spec.code.persistentVolumeClaim: size must be a quantity, such as 10Gi
            {"code":{"persistentVolumeClaim":{"accessModes":[]}}}: rejected, spec.code.persistentVolumeClaim.accessModes: [] has less than 1 item
            {"code":{"persistentVolumeClaim":{"accessModes":["Sometimes"]}}}: rejected, spec.code.persistentVolumeClaim.accessModes[0]: "Sometimes" is not one of "ReadWriteOnce", "ReadOnlyMany" or 2 other candidates
            {"code":{"persistentVolumeClaim":{"existingClaim":""}}}: rejected, spec.code.persistentVolumeClaim.existingClaim: "" is shorter than 1 character
            {"database":{"managed":{"storage":{"size":"0"}}}}: rejected, spec.database.managed.storage: size must be greater than zero
            {"database":{"managed":{"storage":{"size":"10 Gi"}}}}: rejected, spec.database.managed.storage: size must be a quantity, such as 10Gi
            {"database":{"managed":{"storage":{"accessModes":[]}}}}: rejected, spec.database.managed.storage.accessModes: [] has less than 1 item
        "#]],
    );
}

#[test]
fn claims_grow_and_nothing_else_of_them_changes() {
    let code = |claim: Value| json!({ "code": { "persistentVolumeClaim": claim } });
    let data = |claim: Value| json!({ "database": { "managed": { "storage": claim } } });
    let class = |class: &str| code(json!({ "storageClassName": class }));
    let modes = |modes: &[&str]| code(json!({ "accessModes": modes }));
    let size = |size: &str| code(json!({ "size": size }));
    check_edits(
        &[
            (size("10Gi"), size("10240Mi")),
            (size("10Gi"), size("20Gi")),
            (size("10Gi"), size("5Gi")),
            (size("10Gi"), code(json!({}))),
            (size("20Gi"), code(json!({}))),
            (class("a"), class("a")),
            (class("a"), class("b")),
            (class("a"), code(json!({}))),
            (code(json!({})), class("a")),
            (modes(&["ReadWriteMany"]), modes(&["ReadWriteMany"])),
            (modes(&["ReadWriteMany"]), modes(&["ReadWriteOnce"])),
            (
                data(json!({ "size": "10Gi" })),
                data(json!({ "size": "5Gi" })),
            ),
            (
                data(json!({ "storageClassName": "a" })),
                data(json!({ "storageClassName": "b" })),
            ),
            (
                data(json!({ "accessModes": ["ReadWriteMany"] })),
                data(json!({ "accessModes": ["ReadWriteOnce"] })),
            ),
        ],
        &expect![[r#"
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"10240Mi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"20Gi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{"size":"5Gi"}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"10Gi"}}} to {"code":{"persistentVolumeClaim":{}}}: accepted
            {"code":{"persistentVolumeClaim":{"size":"20Gi"}}} to {"code":{"persistentVolumeClaim":{}}}: accepted
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}}: accepted
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"b"}}}: rejected, the storage class of a claim cannot change
            {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}} to {"code":{"persistentVolumeClaim":{}}}: rejected, the storage class of a claim cannot change
            {"code":{"persistentVolumeClaim":{}}} to {"code":{"persistentVolumeClaim":{"storageClassName":"a"}}}: rejected, the storage class of a claim cannot change
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}} to {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}}: accepted
            {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteMany"]}}} to {"code":{"persistentVolumeClaim":{"accessModes":["ReadWriteOnce"]}}}: rejected, the access modes of a claim cannot change
            {"database":{"managed":{"storage":{"size":"10Gi"}}}} to {"database":{"managed":{"storage":{"size":"5Gi"}}}}: accepted
            {"database":{"managed":{"storage":{"storageClassName":"a"}}}} to {"database":{"managed":{"storage":{"storageClassName":"b"}}}}: rejected, the storage class of a claim cannot change
            {"database":{"managed":{"storage":{"accessModes":["ReadWriteMany"]}}}} to {"database":{"managed":{"storage":{"accessModes":["ReadWriteOnce"]}}}}: rejected, the access modes of a claim cannot change
        "#]],
    );
}

#[test]
fn the_schema_of_a_managed_database_keeps_its_name() {
    let named = |name: &str| json!({ "database": { "managed": { "databaseName": name } } });
    let external = json!({ "host": "db", "credentialsSecretRef": { "name": "mine" } });
    let external = json!({ "database": { "external": external } });
    check_edits(
        &[
            (named("a"), named("a")),
            (named("a"), named("b")),
            (named("a"), json!({ "database": { "managed": {} } })),
            (named("a"), json!({})),
            (named("a"), json!({ "database": {} })),
            (json!({}), named("b")),
            (json!({}), named("wordpress")),
            (named("wordpress"), json!({})),
            (named("a"), external.clone()),
            (external, named("b")),
        ],
        &expect![[r#"
            {"database":{"managed":{"databaseName":"a"}}} to {"database":{"managed":{"databaseName":"a"}}}: accepted
            {"database":{"managed":{"databaseName":"a"}}} to {"database":{"managed":{"databaseName":"b"}}}: rejected, database.managed.databaseName cannot change
            {"database":{"managed":{"databaseName":"a"}}} to {"database":{"managed":{}}}: rejected, database.managed.databaseName cannot change
            {"database":{"managed":{"databaseName":"a"}}} to {}: rejected, database.managed.databaseName cannot change
            {"database":{"managed":{"databaseName":"a"}}} to {"database":{}}: rejected, database.managed.databaseName cannot change
            {} to {"database":{"managed":{"databaseName":"b"}}}: rejected, database.managed.databaseName cannot change
            {} to {"database":{"managed":{"databaseName":"wordpress"}}}: accepted
            {"database":{"managed":{"databaseName":"wordpress"}}} to {}: accepted
            {"database":{"managed":{"databaseName":"a"}}} to {"database":{"external":{"credentialsSecretRef":{"name":"mine"},"host":"db"}}}: accepted
            {"database":{"external":{"credentialsSecretRef":{"name":"mine"},"host":"db"}}} to {"database":{"managed":{"databaseName":"b"}}}: accepted
        "#]],
    );
}
