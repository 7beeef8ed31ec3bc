//! Idle code leaves memory, and the next call maps it again.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use tempfile::TempDir;

use super::*;
use crate::{artifact::Cache, testing::guest};

fn try_call(plugin: &Plugin) -> Result<End, Error> {
    let reads = FakeReads::default();
    plugin
        .call(&request(), reads, &CONTEXT, &Limits::default())
        .map(|(report, _)| report.end)
}

fn called(plugin: &Plugin) -> End {
    try_call(plugin).unwrap()
}

fn cache() -> (TempDir, Cache) {
    let dir = TempDir::new().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    (dir, cache)
}

fn configured(engine: &Engine, cache: &Cache) -> Plugin {
    let limits = artifact::Limits::default();
    let artifact = artifact::compile(engine, &guest().build(), &limits, Some(cache)).unwrap();
    let described = Described::load(engine, &artifact, &Limits::default()).unwrap();
    described
        .configure(&serde_json::Map::new(), &checker())
        .unwrap()
}

#[test]
fn what_nobody_calls_is_let_go_and_had_again_by_the_next_call() {
    let engine = engine(Metering::Epochs);
    let (dir, cache) = cache();
    let plugin = configured(&engine, &cache);
    assert_eq!(engine.unmap_idle(Duration::from_mins(1)), 0, "in use");
    assert_eq!(engine.unmap_idle(Duration::ZERO), 1);
    assert_eq!(engine.unmap_idle(Duration::ZERO), 0, "it is gone");
    assert_eq!(plugin.manifest().name.to_string(), "web");
    assert!(matches!(called(&plugin), End::Answered(_)));
    assert_eq!(engine.unmap_idle(Duration::ZERO), 1, "it was back");

    // Whatever happens to the directory meanwhile.
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(matches!(called(&plugin), End::Answered(_)));
    drop(plugin);
    assert_eq!(engine.unmap_idle(Duration::ZERO), 0, "nobody has it");
}

#[test]
fn a_failure_to_map_code_again_is_an_error_of_the_host_and_passes() {
    let engine = engine(Metering::Epochs);
    let (dir, cache) = cache();
    let plugin = configured(&engine, &cache);
    assert_eq!(engine.unmap_idle(Duration::ZERO), 1);

    let code = code_file(dir.path());
    let magic = code_magic(&code);
    code.write_all_at(&[0; 4], 0).unwrap();
    let error = try_call(&plugin).unwrap_err();
    assert!(matches!(error, Error::MapAgain { .. }), "{error}");

    code.write_all_at(&magic, 0).unwrap();
    assert!(matches!(called(&plugin), End::Answered(_)));
}

/// The only compiled code in a cache, open for changes.
fn code_file(cache: &Path) -> File {
    let mut entries = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap());
    let code = entries
        .find(|entry| entry.metadata().unwrap().len() > 1000)
        .unwrap();
    fs::set_permissions(code.path(), Permissions::from_mode(0o600)).unwrap();
    File::options()
        .read(true)
        .write(true)
        .open(code.path())
        .unwrap()
}

/// The first bytes, without which a file is no compiled code.
fn code_magic(code: &File) -> [u8; 4] {
    let mut magic = [0; 4];
    code.read_exact_at(&mut magic, 0).unwrap();
    magic
}

#[test]
fn only_the_last_uncalled_components_stay_mapped() {
    let engine = engine(Metering::Epochs);
    let (_dir, cache) = cache();
    let first = configured(&engine, &cache);
    assert!(matches!(called(&first), End::Answered(_)));
    let others: Vec<_> = (0..20).map(|_| configured(&engine, &cache)).collect();
    assert_eq!(engine.unmap_idle(Duration::ZERO), 1 + 8);
    assert!(matches!(called(&others[0]), End::Answered(_)));
}

#[test]
fn what_is_in_no_file_stays_in_memory() {
    let engine = engine(Metering::Epochs);
    let plugin = plugin_of(&engine, guest());
    assert_eq!(engine.unmap_idle(Duration::ZERO), 0);
    assert!(matches!(called(&plugin), End::Answered(_)));
}
