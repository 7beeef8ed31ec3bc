//! Archives and dumps of each form pass through the script of a Restore.

use super::{
    super::restore_script::{
        PASSWORD,
        servers::{Engine, Server},
    },
    *,
};

#[test]
fn every_format_of_pg_dump_is_restored() {
    let Some(program) = program() else { return };
    let place = Run::new(Shell::Own, "");
    let server = Server::start(&place, Engine::PostgreSql);
    server.create("shop");
    server.query("shop", "CREATE TABLE t (v int); INSERT INTO t SELECT generate_series(1, 3000); \
        CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE VIEW w AS SELECT v FROM t");
    for (number, args) in [
        "",
        "--format=custom",
        "--format=directory",
        "--format=tar",
        "-Fd -Z 3",
        "-Z 6",
        "--clean --if-exists",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("copy_{number}");
        server.create(&name);
        let mut source = server.target("shop");
        source["spec"]["config"]["args"] = json!(args);
        let mut copy = server.target(&name);
        copy["metadata"]["name"] = json!("copy");
        let mut case = Case::new(&json!({}), &[source], &[shelf()]).value("DB0_PASSWORD", PASSWORD);
        let result = case.perform(Some(&program));
        assert_eq!(result.code, Some(0), "{args}: {result:?}");
        case.objects.push(copy);
        let overrides = json!([{ "database": "shop", "databaseRef": { "name": "copy" } }]);
        let restored = case.restore(
            &stored(&result),
            &json!({ "confirm": "copy", "overrides": overrides }),
        );
        assert_eq!(restored.code, Some(0), "{args}: {restored:?}");
        let count = server.query(&name, "SELECT count(*), f() FROM w");
        assert_eq!(count, "3000|1\n", "{args}");
    }
}
