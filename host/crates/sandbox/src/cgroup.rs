//! The cgroup of the process in the unified hierarchy, and its limits.
//!
//! Without a unified hierarchy no limit is known.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the memory limit of the process and its children together, in bytes; none if there is no limit.
pub fn memory_bytes_max() -> Option<u64> {
    memory_bytes_max_below(Path::new("/"))
}

fn memory_bytes_max_below(root: &Path) -> Option<u64> {
    let read = |group: PathBuf| fs::read_to_string(group.join("memory.max")).ok();
    let limits = own_groups(root).into_iter().filter_map(read);
    // The file of a group without a limit contains `max`.
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

/// Returns the directories of the process's own group and of its ancestors, innermost first. The limit of each of them
/// applies.
pub(super) fn own_groups(root: &Path) -> Vec<PathBuf> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let mount = root.join("sys/fs/cgroup");
    let own = mount.join(group);
    own.ancestors()
        .take_while(|group| group.starts_with(&mount))
        .map(Path::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_holds() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(memory_bytes_max_below(root), None);
        write(&root.join("proc/self/cgroup"), "4:memory:/x\n0::/pods/a\n");
        write(&root.join("sys/fs/cgroup/pods/a/memory.max"), "max\n");
        assert_eq!(memory_bytes_max_below(root), None);
        write(&root.join("sys/fs/cgroup/pods/memory.max"), "4096\n");
        write(&root.join("sys/fs/cgroup/memory.max"), "8192\n");
        assert_eq!(memory_bytes_max_below(root), Some(4096));
        write(&root.join("sys/fs/cgroup/pods/a/memory.max"), "1024\n");
        assert_eq!(memory_bytes_max_below(root), Some(1024));
    }

    #[test]
    fn a_process_in_the_root_of_its_namespace_has_a_group_too() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(&root.join("proc/self/cgroup"), "0::/\n");
        write(&root.join("sys/fs/cgroup/memory.max"), "1024\n");
        assert_eq!(memory_bytes_max_below(root), Some(1024));
    }
}
