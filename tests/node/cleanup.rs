//! What a cluster with a real Node leaves behind.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use innkeeper_tests::{
    eventually,
    process::{bound_with_log, is_full, path_from_env, spawn_bound},
};
use rustix::process::Signal;

/// All processes whose namespace of processes is this one, as directories of /proc.
fn processes_in(namespace: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir("/proc").unwrap();
    names
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            // Processes end meanwhile.
            let own = fs::read_link(path.join("ns/pid")).ok()?;
            (own == namespace).then_some(path)
        })
        .collect()
}

/// The namespace of the processes of a cluster, as a link in /proc, and its file. While that is open, no other namespace
/// gets the same link.
fn namespace_of(directory: &Path) -> Option<(PathBuf, File)> {
    let mark = format!("--dir={}", directory.display());
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        let line = fs::read(path.join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        let is_first = words.get(1) == Some(&&b"inside"[..]) && words.contains(&mark.as_bytes());
        let namespace = path.join("ns/pid");
        is_first.then(|| Some((fs::read_link(&namespace).ok()?, File::open(namespace).ok()?)))?
    })
}

/// The cgroups of a cluster in all hierarchies.
fn cgroups(directory: &Path) -> Vec<PathBuf> {
    let name = directory.file_name().unwrap().to_string_lossy();
    let prefix = format!("controlplane-{name}-");
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([root.to_owned()]);
    hierarchies
        // Some of these are files.
        .filter_map(|hierarchy| fs::read_dir(hierarchy).ok())
        .flatten()
        // Other cgroups end meanwhile.
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(&prefix)
        })
        .collect()
}

/// Starts a cluster, ends it with a signal after a while, or when it is ready, and checks that nothing is left.
fn end(signal: Signal, after: Option<Duration>) {
    let directory = tempfile::Builder::new()
        .prefix("innkeeper-test-")
        .tempdir()
        .unwrap();
    let directory = directory.path();
    let program = path_from_env("INNKEEPER_CONTROLPLANE").unwrap();
    let mut command = bound_with_log(&program, &directory.join("supervisor.log")).unwrap();
    command
        .args(["up", "--real-nodes", "1", "--dir"])
        .arg(directory);
    let mut supervisor = spawn_bound(command).unwrap();
    let [node, ready] = ["node", "ready"].map(|name| directory.join(name));
    match after {
        Some(after) => thread::sleep(after),
        None => eventually("the cluster becomes ready", || {
            if ready.exists() {
                Ok(())
            } else {
                Err("no ready file")
            }
        }),
    }
    let namespace = namespace_of(directory);
    supervisor.signal(signal).unwrap();
    supervisor.wait_for(Duration::from_secs(30)).unwrap();

    let moment = format!("after {signal:?} at {after:?}");
    eventually(&format!("nothing is left {moment}"), || {
        let mut left: Vec<_> = [&node, &ready]
            .into_iter()
            .filter(|path| path.exists())
            .cloned()
            .collect();
        left.extend(cgroups(directory));
        left.extend(
            namespace
                .iter()
                .flat_map(|(namespace, _)| processes_in(namespace)),
        );
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*directory.to_string_lossy()), "{mounts}");
}

#[test]
fn a_killed_supervisor_leaves_nothing_at_any_moment() {
    // On an idle machine, the cluster is ready after 6 s.
    let moments: &[u64] = if is_full() {
        &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    } else {
        &[3, 8]
    };
    for seconds in moments {
        end(Signal::KILL, Some(Duration::from_secs(*seconds)));
    }
}

#[test]
fn a_stopped_supervisor_leaves_nothing() {
    for signal in [Signal::TERM, Signal::INT] {
        end(signal, None);
    }
}
