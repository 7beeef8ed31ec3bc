//! Plugin limits. Every default is a limit, so no plugin runs without limits.

use std::time::Duration;

/// The resources that one plugin may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory per instance, summed over memories and tables, in bytes.
    pub memory_bytes_max: usize,
    /// CPU time per call.
    pub deadline: Duration,
    /// The whole answer as it leaves the sandbox, in bytes.
    pub output_bytes_max: usize,
    /// JSON text per child, and for the parent's status, in bytes; the API server itself refuses objects above about
    /// 1.5 MiB.
    pub object_bytes_max: usize,
    /// Children in one answer.
    pub children_max: usize,
    /// Log text per pass, in bytes.
    pub log_bytes_max: usize,
    /// Log text per second over all passes, in bytes.
    pub log_bytes_per_second_max: usize,
    /// Calls to `get` and `list` in one pass.
    pub host_calls_max: u32,
    /// Bytes that `get` and `list` return in one pass.
    pub host_call_bytes_max: usize,
    /// Concurrent passes.
    pub concurrency_max: usize,
    /// Passes per second.
    pub passes_per_second_max: u32,
    /// Writes per minute for one parent.
    pub writes_per_minute_max: u32,
    /// Writes per second for all parents in one namespace; unused writes are saved up for
    /// [`NAMESPACE_BURST`].
    pub writes_per_second_max: u32,
    /// Children in one namespace.
    pub namespace_objects_max: usize,
    /// Children in one namespace that are the same plugin's parents.
    pub namespace_nested_max: usize,
    /// JSON text for all children in one namespace, in bytes.
    pub namespace_bytes_max: usize,
    /// Children that one parent retains.
    pub retained_max: usize,
}

/// The time for which a namespace saves up unused writes.
///
/// With the default rate, 10,000 new parents may have five writes each at once.
pub const NAMESPACE_BURST: Duration = Duration::from_secs(100);

/// The longest deadline that does not count as long.
///
/// Calls with a longer one share all guest threads but one, and half of the guest memory, so a plugin with a shorter
/// one waits for this CPU time at most until another call ends; ten times as long where the machine is busy. Four times
/// the default; a usual call takes less than a millisecond.
pub const SHORT_DEADLINE_MAX: Duration = Duration::from_secs(1);

impl Limits {
    /// Returns true if a call may hold a guest thread for so long that the plugin counts as slow.
    pub fn has_long_deadline(&self) -> bool {
        self.deadline > SHORT_DEADLINE_MAX
    }
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1024;
        const MIB: usize = 1024 * KIB;
        Self {
            // Down to the writes per minute: usual plugins stay far below, and one plugin at all its
            // limits leaves the others working.
            memory_bytes_max: 64 * MIB,
            deadline: Duration::from_millis(250),
            output_bytes_max: 4 * MIB,
            object_bytes_max: MIB,
            children_max: 256,
            log_bytes_max: 16 * KIB,
            log_bytes_per_second_max: 64 * KIB,
            host_calls_max: 1000,
            host_call_bytes_max: 16 * MIB,
            concurrency_max: 4,
            passes_per_second_max: 10_000,
            writes_per_minute_max: 120,
            // More than twice what 10,000 parents need with two children each, 5 KiB per child.
            writes_per_second_max: 500,
            namespace_objects_max: 50_000,
            // A plugin that multiplies its own parents reaches this within seconds, at some hundred a second.
            namespace_nested_max: 1_000,
            namespace_bytes_max: 256 * MIB,
            // Twice as many as the default for children.
            retained_max: 512,
        }
    }
}
