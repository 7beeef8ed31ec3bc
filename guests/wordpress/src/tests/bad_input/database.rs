//! Databases and their credentials.

use super::*;

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
        {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}},"sqlrootpassword":"abc"}: rejected, spec: sqlrootpassword has no effect with an external database
        {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"}},"sqlRootPassword":"abc"}: rejected, spec: sqlrootpassword has no effect with an external database
        {"database":{"managed":{"credentialsSecretRef":{"name":"s"}}},"sqlrootpassword":"abc"}: rejected, spec: set either sqlrootpassword or database.managed.credentialsSecretRef
        {"database":{"managed":{"credentialsSecretRef":{"name":"s"}}},"sqlRootPassword":"abc"}: rejected, spec: set either sqlrootpassword or database.managed.credentialsSecretRef
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
            {"database":{"external":{"credentialsSecretRef":{"name":"s"},"host":"db"},"managed":{}}}: rejected, spec.database: set only one of database.managed and database.external
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
            {"database":{"managed":{"databaseName":"mysql"}}}: rejected, spec.database.managed.databaseName: databaseName is a system schema: set another name
            {"database":{"managed":{"databaseName":"Information_Schema"}}}: rejected, spec.database.managed.databaseName: databaseName is a system schema: set another name
            {"database":{"managed":{"databaseName":"mysql1"}}}: accepted
            {"database":{"managed":{"databaseName":"a b"}}}: rejected, spec.database.managed.databaseName: "a b" does not match "^[A-Za-z0-9_]{1,64}$"
            {"database":{"managed":{"credentialsSecretRef":{"name":"s","usernameKey":"password"}}}}: rejected, spec.database.managed.credentialsSecretRef: usernameKey must differ from the password keys
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
