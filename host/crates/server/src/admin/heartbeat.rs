//! Heartbeats from parts of the host that must never block.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::Check;

/// All expected heartbeats.
#[derive(Clone, Default)]
pub struct Heartbeats(Arc<Mutex<Vec<Sender>>>);

/// An expected sender.
struct Sender {
    name: String,
    patience: Duration,
    /// The last heartbeat, while the sender exists.
    last: Weak<Mutex<Instant>>,
}

/// Sends heartbeats. While it exists, silence fails the check.
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeats {
    /// Expects a heartbeat at least once per `patience` from now on.
    pub fn expect(&self, name: impl Into<String>, patience: Duration) -> Heartbeat {
        let last = Arc::new(Mutex::new(Instant::now()));
        let mut senders = self.0.lock();
        // Controllers come and go with their plugins, and ended ones must not pile up.
        senders.retain(|sender| sender.last.strong_count() > 0);
        senders.push(Sender {
            name: name.into(),
            patience,
            last: Arc::downgrade(&last),
        });
        Heartbeat(last)
    }

    /// Returns one check per sender, which fails after silence longer than `patience`.
    pub fn checks(&self) -> Vec<Check> {
        let senders = self.0.lock();
        senders
            .iter()
            .filter_map(|sender| {
                let silence = sender.last.upgrade()?.lock().elapsed();
                Some(Check {
                    name: sender.name.clone(),
                    problem: (silence > sender.patience)
                        .then(|| format!("no heartbeat for {} s", silence.as_secs())),
                })
            })
            .collect()
    }
}

impl Heartbeat {
    /// Sends a heartbeat.
    pub fn send(&self) {
        *self.0.lock() = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_a_problem_while_the_sender_exists() {
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
