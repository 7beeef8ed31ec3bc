//! A parent with a run and a Restore, in directories on this machine.
//!
//! gobackup is real if `INNKEEPER_GOBACKUP` names it, and the stand-in otherwise.

use std::{collections::BTreeMap, fs};

use innkeeper_sdk::testing::TestRequest;

use super::{
    restore::restore,
    restore_script::{both, containers_of},
    run::{Run, RunResult, Shell, gobackup},
    *,
};

/// A parent with the objects that it references, and a run.
pub(super) struct Case {
    pub(super) run: Run,
    pub(super) objects: Vec<Value>,
    pub(super) parent: Value,
    /// Secret values by the names of their variables.
    pub(super) values: Vec<(&'static str, Vec<u8>)>,
}

impl Case {
    /// Returns a parent with these fields, databases and storages. `/data` is a volume of the run.
    pub(super) fn new(spec: &Value, databases: &[Value], storages: &[Value]) -> Self {
        let run = Run::new(Shell::Own, "");
        for directory in ["volumes/data", "volumes/data/archives"] {
            run.directory(directory);
        }
        let names = |objects: &[Value]| -> Value {
            objects
                .iter()
                .map(|object| json!({ "name": object["metadata"]["name"] }))
                .collect()
        };
        let volume = json!({
            "name": "v", "mountPath": "/data", "readOnly": false,
            "persistentVolumeClaim": { "claimName": "v" },
        });
        let mut parent = backup(json!({ "volumes": [volume], "storageRefs": names(storages) }));
        parent["spec"]["databaseRefs"] = names(databases);
        if databases.is_empty() {
            parent["spec"]
                .as_object_mut()
                .unwrap()
                .remove("databaseRefs");
        }
        for (key, value) in spec.as_object().unwrap() {
            parent["spec"][key] = value.clone();
        }
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "v", "namespace": "default" },
        });
        let mut objects = vec![secret("keys", &["pg", "id", "key"]), claim];
        objects.extend(databases.iter().chain(storages).cloned());
        Self {
            run,
            objects,
            parent,
            values: Vec::new(),
        }
    }

    pub(super) fn value(mut self, name: &'static str, value: &[u8]) -> Self {
        self.values.push((name, value.to_vec()));
        self
    }

    fn values(&self) -> Vec<(&str, &[u8])> {
        self.values
            .iter()
            .map(|(name, value)| (*name, value.as_slice()))
            .collect()
    }

    /// Runs the Job's script with gobackup, or with the stand-in.
    pub(super) fn perform(&self, program: Option<&str>) -> RunResult {
        let scripts = json!({ "scripts": true });
        let outcome = reconcile_with(&self.parent, &self.objects, &scripts).unwrap();
        assert!(outcome.child("run").is_some(), "{:?}", outcome.report());
        let text = configuration(&outcome)
            .replace("/etc/gobackup/keys", &self.run.path("keys"))
            .replace("\"/data", &format!("\"{}", self.run.mount("/data")));
        let program = match program {
            Some(program) => {
                let config = self.run.file("gobackup.yml", &text).display().to_string();
                format!(
                    "case $1 in\nperform) exec {program} perform --config {config} ;;\n*) exec {program} \"$@\" ;;\nesac"
                )
            }
            None => standin::program(&documents(&text)[0]),
        };
        self.run.program("gobackup", &program);
        fs::write(self.run.path("termination"), "").unwrap();
        let container = gobackup(&outcome);
        self.run
            .execute(&container, &self.run.search_path(), &self.values())
    }

    /// Restores a file from the first storage with these fields.
    pub(super) fn restore(&self, file: &str, spec: &Value) -> RunResult {
        let volume = json!({
            "name": "v", "mountPath": "/data", "readOnly": false,
            "persistentVolumeClaim": { "claimName": "v" },
        });
        let mut parent = restore(json!({ "file": file, "volumes": [volume] }));
        for (key, value) in spec.as_object().unwrap() {
            parent["spec"][key] = value.clone();
        }
        let mut objects = self.objects.clone();
        objects.push(self.parent.clone());
        let request = TestRequest::new(&parent).build();
        let outcome = Plugin::reconcile(&request, &host(&objects)).unwrap();
        assert!(outcome.child("restore").is_some(), "{:?}", outcome.report());
        for directory in ["work", "termination"] {
            fs::remove_dir_all(self.run.path(directory)).ok();
        }
        self.run.directory("work");
        fs::write(self.run.path("termination"), "").unwrap();
        both(
            &self.run,
            &containers_of(&outcome, "restore"),
            &self.values(),
        )
    }
}

/// Returns the name of the only stored file.
#[track_caller]
pub(super) fn stored(result: &RunResult) -> String {
    assert_eq!(result.code, Some(0), "{result:?}");
    let message: Value = serde_json::from_str(&result.message).unwrap();
    message["artifacts"][0]["file"].as_str().unwrap().to_owned()
}

/// Returns a local storage.
pub(super) fn shelf() -> Value {
    related(
        "Storage",
        "s",
        json!({ "type": "local", "config": { "path": "/data/archives" } }),
    )
}

/// Returns all files below a directory of a run, with their sizes.
pub(super) fn files(run: &Run, directory: &str) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    let mut directories = vec![std::path::PathBuf::from(run.path(directory))];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                directories.push(entry.path());
            } else {
                sizes.insert(entry.path().display().to_string(), metadata.len());
            }
        }
    }
    sizes
}

/// Returns the archives in the local storage.
pub(super) fn archives(run: &Run) -> Vec<String> {
    files(run, "volumes/data/archives")
        .into_keys()
        .filter(|path| !path.contains("/.gobackup-state/"))
        .collect()
}
