//! One instance's memory: all linear memories and tables together.
//!
//! Wasmtime's limits apply to each memory separately: a component with four memories would get four times the limit.

use wasmtime::ResourceLimiter;

/// Core instances per component: the module itself, the glue that the encoder adds, and adapters. The pool has this
/// many for every instance.
pub(super) const CORE_INSTANCES_MAX: u32 = 16;
/// Memories per component; a guest has one.
pub(super) const MEMORIES_MAX: u32 = 4;
/// Tables per component: as many as core instances.
pub(super) const TABLES_MAX: u32 = 16;
/// Elements per table; a large guest takes the addresses of a few thousand functions.
pub(super) const TABLE_ELEMENTS_MAX: usize = 65_536;

/// Adds up and bounds an instance's memory.
#[derive(Debug)]
pub(super) struct MemoryMeter {
    bytes_max: usize,
    bytes: usize,
    peak_bytes: usize,
    exceeded: bool,
}

impl MemoryMeter {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            peak_bytes: 0,
            exceeded: false,
        }
    }

    /// Returns the largest amount that was held at any time.
    pub(super) const fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }

    /// Returns true if the guest asked for more than the limit.
    pub(super) const fn exceeded(&self) -> bool {
        self.exceeded
    }

    pub(super) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Counts growth, or ends the call above the limit.
    fn grow(&mut self, by_bytes: usize) -> wasmtime::Result<bool> {
        let bytes = self.bytes.saturating_add(by_bytes);
        if bytes > self.bytes_max {
            self.exceeded = true;
            // If the growth were only refused, the guest's allocator would abort without a message.
            return Err(wasmtime::Error::msg("memory limit exceeded"));
        }
        self.bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
        Ok(true)
    }
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // A memory cannot grow beyond its own maximum, and asking for that is no fault. A memory without one gets the
        // pool's maximum here, which is never below the limit.
        if maximum.is_some_and(|maximum| desired > maximum && maximum < self.bytes_max) {
            return Ok(false);
        }
        self.grow(desired.saturating_sub(current))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // A slot in the pool has room for this many elements.
        if maximum.is_some_and(|maximum| desired > maximum) || desired > TABLE_ELEMENTS_MAX {
            return Ok(false);
        }
        let elements = desired.saturating_sub(current);
        // An element is a pointer.
        self.grow(elements.saturating_mul(size_of::<usize>()))
    }

    fn instances(&self) -> usize {
        usize::try_from(CORE_INSTANCES_MAX).unwrap_or(usize::MAX)
    }

    fn tables(&self) -> usize {
        usize::try_from(TABLES_MAX).unwrap_or(usize::MAX)
    }

    fn memories(&self) -> usize {
        usize::try_from(MEMORIES_MAX).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_limit() {
        let mut meter = MemoryMeter::new(1 << 20);
        assert!(meter.memory_growing(0, 1 << 19, None).unwrap());
        assert!(meter.memory_growing(0, 1 << 18, None).unwrap());
        assert!(meter.table_growing(0, 1 << 10, None).unwrap());
        assert!(meter.memory_growing(1 << 19, 1 << 20, None).is_err());
        assert!(meter.exceeded());
        assert_eq!(meter.peak_bytes(), (1 << 19) + (1 << 18) + (8 << 10));
    }

    #[test]
    fn growth_beyond_the_declared_maximum_is_no_fault() {
        let mut meter = MemoryMeter::new(1 << 20);
        assert!(!meter.memory_growing(0, 1 << 30, Some(1 << 16)).unwrap());
        assert!(!meter.exceeded());
    }
}
