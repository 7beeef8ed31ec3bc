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
pub struct Heart {
    start: Instant,
    beats: Arc<Mutex<Vec<Watched>>>,
}

struct Watched {
    name: String,
    patience: Duration,
    last: Arc<AtomicU64>,
}

/// A sender of heartbeats; as long as it is held, silence fails the check.
pub struct Beat {
    start: Instant,
    last: Arc<AtomicU64>,
    beats: Arc<Mutex<Vec<Watched>>>,
}

impl Default for Heart {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            beats: Arc::default(),
        }
    }
}

impl Heart {
    /// Expects a heartbeat at least once per `patience`, from now on.
    pub fn expect(&self, name: impl Into<String>, patience: Duration) -> Beat {
        let last = Arc::new(AtomicU64::new(millis(self.start.elapsed())));
        self.beats.lock().push(Watched {
            name: name.into(),
            patience,
            last: Arc::clone(&last),
        });
        Beat {
            start: self.start,
            last,
            beats: Arc::clone(&self.beats),
        }
    }

    /// Returns one check per sender, which fails after a silence longer than its `patience`.
    pub fn checks(&self) -> Vec<Check> {
        let now = millis(self.start.elapsed());
        let beats = self.beats.lock();
        let checks = beats.iter().map(|watched| {
            let silent = now.saturating_sub(watched.last.load(Ordering::Relaxed));
            let silent = Duration::from_millis(silent);
            let is_late = silent > watched.patience;
            Check {
                name: watched.name.clone(),
                problem: is_late.then(|| format!("no heartbeat for {} s", silent.as_secs())),
            }
        });
        checks.collect()
    }
}

impl Beat {
    /// Sends a heartbeat.
    pub fn beat(&self) {
        self.last
            .store(millis(self.start.elapsed()), Ordering::Relaxed);
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        let mut beats = self.beats.lock();
        beats.retain(|watched| !Arc::ptr_eq(&watched.last, &self.last));
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
        let heart = Heart::default();
        let patient = heart.expect("patient", Duration::from_mins(1));
        let silent = heart.expect("silent", Duration::ZERO);
        let problem = |name: &str| {
            let checks = heart.checks();
            let check = checks.into_iter().find(|check| check.name == name);
            check.map(|check| check.problem.is_some())
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while problem("silent") == Some(false) && Instant::now() < deadline {
            std::hint::spin_loop();
        }
        assert_eq!(problem("patient"), Some(false));
        assert_eq!(problem("silent"), Some(true));
        patient.beat();
        drop(silent);
        assert_eq!(problem("silent"), None);
    }
}
