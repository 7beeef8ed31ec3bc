//! A check that pages of this process cannot be swapped out.

use std::{fs, path::Path};

use super::cgroup;

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
    cgroup::own_groups(root).iter().any(|group| {
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
