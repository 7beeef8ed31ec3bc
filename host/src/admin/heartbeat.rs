//! Heartbeats of the parts of the host that must never block.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::Check;

/// The set of expected heartbeats.
#[derive(Clone)]
pub struct Heartbeats {
    start: Instant,
    senders: Arc<Mutex<Vec<Sender>>>,
}

/// The expectation for one sender.
struct Sender {
    name: String,
    patience: Duration,
    last: Arc<AtomicU64>,
}

/// A sender of heartbeats; as long as it is held, silence fails the check.
pub struct Heartbeat {
    start: Instant,
    last: Arc<AtomicU64>,
    senders: Arc<Mutex<Vec<Sender>>>,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            senders: Arc::default(),
        }
    }
}

impl Heartbeats {
    /// Expects a heartbeat at least once per `patience`, from now on.
    pub fn expect(&self, name: impl Into<String>, patience: Duration) -> Heartbeat {
        let last = Arc::new(AtomicU64::new(millis(self.start.elapsed())));
        self.senders.lock().push(Sender {
            name: name.into(),
            patience,
            last: Arc::clone(&last),
        });
        Heartbeat {
            start: self.start,
            last,
            senders: Arc::clone(&self.senders),
        }
    }

    /// Returns one check per sender, which fails after a silence longer than its `patience`.
    pub fn checks(&self) -> Vec<Check> {
        let now = millis(self.start.elapsed());
        let senders = self.senders.lock();
        let checks = senders.iter().map(|sender| {
            let silent = now.saturating_sub(sender.last.load(Ordering::Relaxed));
            let silent = Duration::from_millis(silent);
            let is_late = silent > sender.patience;
            Check {
                name: sender.name.clone(),
                problem: is_late.then(|| format!("no heartbeat for {} s", silent.as_secs())),
            }
        });
        checks.collect()
    }
}

impl Heartbeat {
    /// Sends a heartbeat.
    pub fn send(&self) {
        self.last
            .store(millis(self.start.elapsed()), Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let mut senders = self.senders.lock();
        senders.retain(|sender| !Arc::ptr_eq(&sender.last, &self.last));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_silence_is_a_problem_as_long_as_the_beat_is_held() {
        let heartbeats = Heartbeats::default();
        let patient = heartbeats.expect("patient", Duration::from_mins(1));
        let silent = heartbeats.expect("silent", Duration::ZERO);
        let problem = |name: &str| {
            let checks = heartbeats.checks();
            let check = checks.into_iter().find(|check| check.name == name);
            check.map(|check| check.problem.is_some())
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while problem("silent") == Some(false) && Instant::now() < deadline {
            std::hint::spin_loop();
        }
        assert_eq!(problem("patient"), Some(false));
        assert_eq!(problem("silent"), Some(true));
        patient.send();
        drop(silent);
        assert_eq!(problem("silent"), None);
    }
}
