//! Confines the compiling process: it reads, computes and writes the result, and nothing else.
//!
//! The kernel enforces it twice, as far as it can: Landlock refuses files, TCP, and signals to other processes; seccomp
//! refuses all system calls that compiling does not need.
//! The output is native code that a host runs, so a compiler that a component took over is stopped, not only refused.

use std::{collections::BTreeMap, env::consts::ARCH, fmt, io, process};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetError, Scope,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// The newest Landlock version that the library knows; older kernels enforce what they know.
const LANDLOCK: ABI = ABI::V10;

/// System calls that compiling needs: for the allocator, threads and standard streams.
///
/// An allow list and not a deny list, because kernels get new system calls. All others seem to be
/// missing (ENOSYS), as in an older kernel: for these, libraries have another way. So another library version compiles
/// as before, and a thread begins with `clone`, whose flags a filter can read, instead of `clone3`.
const NEEDED: [i64; 29] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// System calls that reach another process, another machine or the kernel itself. No library makes them on its own, so
/// they end the process.
///
/// Opening a file does not: the allocator may read how many processors there are, and has another way without it.
const REACHING: [i64; 35] = [
    libc::SYS_accept4,
    libc::SYS_add_key,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_connect,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_kill,
    libc::SYS_listen,
    libc::SYS_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setns,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// `clone` flags that matter here: for a new thread, and for new namespaces.
const CLONE_FLAGS: i32 = libc::CLONE_THREAD
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// The filters in a fully confined process.
const FILTERS: usize = 2;

/// The system calls that a filter names: a verdict on a component depends on them.
pub(super) const RULES: (&[i64], &[i64], i32) = (&NEEDED, &REACHING, CLONE_FLAGS);

/// The start of a confined process's line: `confined: Landlock V7, seccomp`.
pub(super) const CONFINED: &str = "confined: ";

/// The restrictions that the kernel enforces on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The Landlock version; none if the kernel lacks it.
    landlock: Option<ABI>,
    /// The number of installed system call [`FILTERS`].
    filters: usize,
}

impl Confinement {
    /// Confines this process, as far as the kernel can.
    pub(super) fn enforce() -> Result<Self, Error> {
        Ok(Self {
            // First: the filters would refuse Landlock's system calls.
            landlock: restrict_files().map_err(Error::Landlock)?,
            filters: filter_calls().map_err(Error::Seccomp)?,
        })
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CONFINED)?;
        match self.landlock {
            Some(version) => write!(f, "Landlock {version:?}")?,
            None => f.write_str("no Landlock")?,
        }
        f.write_str(match self.filters {
            0 => ", no seccomp",
            FILTERS.. => ", seccomp",
            _ => ", a part of seccomp",
        })
    }
}

/// A confinement error. That a kernel or container lacks a part is none.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Landlock failed, so the component is not compiled. A kernel without Landlock is no error.
    #[error("failed to refuse files and networks to this process")]
    Landlock(#[source] RulesetError),
    /// Seccomp failed, so the component is not compiled. A container that forbids the filter is no error.
    #[error("failed to filter the system calls of this process")]
    Seccomp(#[source] seccompiler::Error),
}

/// Refuses all files, TCP ports, and signals to other processes to this thread and those that it starts; the standard
/// streams are open already. Returns the version that the kernel enforces.
fn restrict_files() -> Result<Option<ABI>, RulesetError> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Some(effective_abi),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
    })
}

/// Filters system calls for all threads in this process. Returns how many filters the kernel accepted.
fn filter_calls() -> Result<usize, seccompiler::Error> {
    // The library makes no filters for other processors.
    let Ok(arch) = TargetArch::try_from(ARCH) else {
        return Ok(0);
    };
    // If several filters match, the strictest decides. The needed calls come last: that filter also refuses `seccomp`.
    let filters: [_; FILTERS] = [reaching(arch)?, needed(arch)?];
    for (applied, filter) in filters.into_iter().enumerate() {
        match seccompiler::apply_filter_all_threads(&BpfProgram::try_from(filter)?) {
            Err(seccompiler::Error::Seccomp(error)) if is_unsupported(&error) => {
                return Ok(applied);
            }
            ended => ended?,
        }
    }
    Ok(FILTERS)
}

/// Returns true if the kernel has no filters, or if the container's seccomp profile refuses them (EPERM).
fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [libc::EINVAL, libc::ENOSYS, libc::EPERM];
    error
        .raw_os_error()
        .is_some_and(|number| unsupported.contains(&number))
}

/// Returns the filter that ends the process at a call that reaches outside.
fn reaching(arch: TargetArch) -> Result<SeccompFilter, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REACHING.map(|call| (call, Vec::new())).into();
    // A new process.
    let is_process = argument(0, bits(libc::CLONE_THREAD), 0)?;
    rules.insert(libc::SYS_clone, vec![is_process]);
    let others = SeccompAction::Allow;
    let matching = SeccompAction::KillProcess;
    SeccompFilter::new(rules, others, matching, arch)
}

/// Returns the filter that refuses all calls but the needed ones.
fn needed(arch: TargetArch) -> Result<SeccompFilter, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = NEEDED.map(|call| (call, Vec::new())).into();
    let is_thread = argument(0, bits(CLONE_FLAGS), bits(libc::CLONE_THREAD))?;
    rules.insert(libc::SYS_clone, vec![is_thread]);
    // New native code is for the host.
    let is_data = argument(2, bits(libc::PROT_EXEC), 0)?;
    rules.insert(libc::SYS_mmap, vec![is_data.clone()]);
    rules.insert(libc::SYS_mprotect, vec![is_data]);
    // An abort's signal.
    let is_own = argument(0, u64::MAX, process::id().into())?;
    rules.insert(libc::SYS_tgkill, vec![is_own]);
    let others = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, others, SeccompAction::Allow, arch)
}

/// Returns the rule that an argument has this value in a mask's bits.
fn argument(index: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let operator = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Qword, operator, value)?;
    SeccompRule::new(vec![condition])
}

/// Returns flags as a system call argument.
fn bits(flags: i32) -> u64 {
    flags.unsigned_abs().into()
}

#[cfg(test)]
mod tests;
