//! The inputs of a target that are checked in.

use std::{fs, path::Path};

use serde_json::{Deserializer, Value};

/// One input of a corpus.
#[derive(Debug)]
pub(super) struct Seed {
    /// The name of its file.
    pub(super) name: String,
    /// The input.
    pub(super) bytes: Vec<u8>,
    /// The input as JSON documents; none if it is anything else.
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

/// Returns the inputs of a target by name. A file `*.wat` is WebAssembly as text.
pub(super) fn of(target: &str) -> Vec<Seed> {
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
