//! Generated files in version control are up to date.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use innkeeper_tests::{
    manifest::{self, root},
    process::path_from_env,
};
use serde_json::json;

/// Reads all files below a directory, by their path in it.
fn files_below(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("a directory can be listed") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path
                    .strip_prefix(directory)
                    .expect("it lies below")
                    .to_owned();
                found.insert(
                    name,
                    fs::read_to_string(&path).expect("generated files are text"),
                );
            }
        }
    }
    found
}

/// The files of `deploy/` that are written by hand.
const HAND_WRITTEN: [&str; 3] = ["README.md", "alerts.yaml", "dashboard.yaml"];

#[test]
fn deploy_matches_the_output_of_manifests() {
    let guests = path_from_env("INNKEEPER_GUESTS").expect("the guests are built");
    let fresh = tempfile::tempdir().expect("a directory can be made");
    let mut command = Command::new(path_from_env("INNKEEPER_BIN").expect("the host is built"));
    command.arg("manifests").arg("--out").arg(fresh.path());
    for guest in ["backup", "etcd", "memcached", "wordpress"] {
        command
            .arg("--plugin")
            .arg(guests.join(format!("{guest}.wasm")));
    }
    let output = command.output().expect("the host can be started");
    assert!(output.status.success(), "{output:?}");

    let (fresh, mut committed) = (
        files_below(fresh.path()),
        files_below(&root().join("deploy")),
    );
    for name in HAND_WRITTEN {
        assert!(committed.remove(Path::new(name)).is_some(), "deploy/{name}");
    }
    assert!(
        fresh.len() > 10,
        "too few files were generated: {:?}",
        fresh.keys()
    );
    let names = |files: &BTreeMap<PathBuf, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&fresh), names(&committed), "files of deploy/");
    let stale: Vec<&PathBuf> = fresh
        .iter()
        .filter(|(name, text)| committed[*name] != **text)
        .map(|(name, _)| name)
        .collect();
    assert!(
        stale.is_empty(),
        "deploy/ is stale in {stale:?}: run `innkeeper manifests --plugin ... --out deploy` with the four guests"
    );
}

/// The definitions of the parents of the shipped plugins.
const PARENTS: [&str; 5] = [
    "backups.gobackup.io",
    "cronbackups.gobackup.io",
    "etcdclusters.etcd.ydzs.io",
    "memcacheds.cache.example.com",
    "wordpresses.example.com",
];

/// `kubectl get innkeeper` lists all of them, and the columns of each begin and end alike.
#[test]
fn parents_have_one_category_and_the_same_columns_first_and_last() {
    for name in PARENTS {
        let crd = manifest::load(&format!("deploy/crds/{name}.yaml"))
            .unwrap()
            .remove(0);
        let spec = &crd["spec"];
        assert_eq!(spec["names"]["categories"], json!(["innkeeper"]), "{name}");
        let columns = spec["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap();
        let columns: Vec<&str> = columns
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert_eq!((columns[0], columns[1]), ("Ready", "Reason"), "{name}");
        assert_eq!(columns.last(), Some(&"Age"), "{name}");
        let text = crd.to_string();
        assert!(
            !text.contains("resourceClaims"),
            "{name} has resources.claims"
        );
    }
}
