//! A target's checked-in inputs.

use std::{fs, path::Path};

use serde_json::{Deserializer, Value};

/// One corpus input.
#[derive(Debug)]
pub(super) struct Seed {
    /// The file name.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// The input as JSON documents; `None` if it is anything else.
    pub(super) documents: Option<Vec<Value>>,
}

impl Seed {
    pub(super) fn new(name: String, bytes: Vec<u8>) -> Self {
        let read: Result<Vec<Value>, _> = Deserializer::from_slice(&bytes).into_iter().collect();
        let documents = read.ok().filter(|documents| !documents.is_empty());
        Self {
            name,
            bytes,
            documents,
        }
    }
}

/// Returns a target's inputs by name. A file `*.wat` is WebAssembly text.
pub(super) fn load(target: &str) -> Vec<Seed> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut seeds = Vec::new();
    for entry in fs::read_dir(directory.join(target)).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.extension().is_some_and(|extension| extension == "wat") {
            wat::parse_file(&path).unwrap()
        } else {
            fs::read(&path).unwrap()
        };
        let name = path.file_name().unwrap().display().to_string();
        seeds.push(Seed::new(name, bytes));
    }
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    seeds
}
