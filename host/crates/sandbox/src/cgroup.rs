//! The process's memory limit: its cgroup's limits in the unified hierarchy, and swap.
//!
//! Without a unified hierarchy no limit is known.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the memory limit for the process and its children together, in bytes; none if there is no limit.
pub fn memory_bytes_max() -> Option<u64> {
    memory_bytes_max_below(Path::new("/"))
}

fn memory_bytes_max_below(root: &Path) -> Option<u64> {
    let read = |group: PathBuf| fs::read_to_string(group.join("memory.max")).ok();
    own_groups(root)
        .into_iter()
        .filter_map(read)
        // A group without a limit has `max` in this file.
        .filter_map(|text| text.trim().parse().ok())
        .min()
}

/// Returns the directories for the process's own group and all ancestors, innermost first. The limit in each
/// applies.
fn own_groups(root: &Path) -> Vec<PathBuf> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    // `0::` marks the unified hierarchy; the lines for older controllers have other numbers.
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let mount = root.join("sys/fs/cgroup");
    mount
        .join(group)
        .ancestors()
        // Directories above the mount are no groups.
        .take_while(|group| group.starts_with(&mount))
        .map(Path::to_owned)
        .collect()
}

/// Returns true if no page of this process can be swapped out: the machine has no swap, or the process's cgroup may use
/// none.
///
/// Returns false if this cannot be found out.
pub fn swap_is_off() -> bool {
    no_swap_device(Path::new("/proc/swaps")) || cgroup_forbids_swap(Path::new("/"))
}

fn no_swap_device(swaps: &Path) -> bool {
    // A heading, then one line per device.
    fs::read_to_string(swaps)
        .is_ok_and(|text| text.starts_with("Filename") && text.lines().count() == 1)
}

/// A limit further up holds as well, so that the first zero on the way to the root decides.
fn cgroup_forbids_swap(root: &Path) -> bool {
    own_groups(root).iter().any(|group| {
        fs::read_to_string(group.join("memory.swap.max")).is_ok_and(|max| max.trim() == "0")
    })
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

    #[test]
    fn no_device_means_off() {
        let dir = tempfile::tempdir().unwrap();
        let swaps = dir.path().join("swaps");
        assert!(!no_swap_device(&swaps));
        write(&swaps, "Filename Type Size Used Priority\n");
        assert!(no_swap_device(&swaps));
        write(&swaps, "Filename Type\n/dev/sda2 partition\n");
        assert!(!no_swap_device(&swaps));
    }

    #[test]
    fn a_limit_of_zero_anywhere_above_means_off() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(!cgroup_forbids_swap(root));
        write(&root.join("proc/self/cgroup"), "4:memory:/x\n0::/pods/a\n");
        write(&root.join("sys/fs/cgroup/pods/a/memory.swap.max"), "max\n");
        assert!(!cgroup_forbids_swap(root));
        write(&root.join("sys/fs/cgroup/pods/memory.swap.max"), "0\n");
        assert!(cgroup_forbids_swap(root));
    }
}
