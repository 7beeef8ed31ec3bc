//! This process's resource usage, for metrics.

use std::{fs, io, time::Duration};

use innkeeper_metrics::ProcessSample;
use jiff::Timestamp;
use rustix::{
    param::page_size,
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

/// This process.
pub(super) struct Process {
    /// Read once, so that changes of the clock do not matter.
    start: Timestamp,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            start: Timestamp::now(),
        }
    }
}

impl Process {
    /// Returns the current usage; none if `/proc` is unreadable.
    pub(super) fn sample(&self) -> Option<ProcessSample> {
        let (size, resident) = pages(&fs::read_to_string("/proc/self/statm").ok()?)?;
        let page = f64::from(u32::try_from(page_size()).ok()?);
        let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()?;
        let limit = getrlimit(Resource::Nofile).current;
        Some(ProcessSample {
            cpu_seconds: cpu.as_secs_f64(),
            resident_bytes: resident * page,
            virtual_bytes: size * page,
            open_fds: descriptors().ok()?,
            max_fds: limit.map(|limit| f64::from(u32::try_from(limit).unwrap_or(u32::MAX))),
            start_seconds: self.start.as_duration().as_secs_f64(),
        })
    }
}

/// Returns the virtual and resident size, in pages.
fn pages(statm: &str) -> Option<(f64, f64)> {
    let mut numbers = statm.split_whitespace();
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

fn descriptors() -> io::Result<usize> {
    let count = fs::read_dir("/proc/self/fd")?.count();
    // Except the one that reads the directory.
    Ok(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_this_process() {
        let process = Process::default();
        let before = process.sample().unwrap();
        let files: Vec<_> = (0..3)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        let memory = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = process.sample().unwrap();
        assert!(after.open_fds >= 3 + 3, "{after:?}");
        assert!(after.max_fds.unwrap() >= 64.0, "{after:?}");
        assert!(after.cpu_seconds >= before.cpu_seconds && after.cpu_seconds > 0.0);
        let least = f64::from(u32::try_from(memory.len()).unwrap());
        assert!(after.resident_bytes >= least, "{after:?}");
        assert!(after.virtual_bytes >= after.resident_bytes, "{after:?}");
        assert!((after.start_seconds - before.start_seconds).abs() < f64::EPSILON);
        drop(files);
    }
}
