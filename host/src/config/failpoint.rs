//! Where a crash test wants the process to die, in a build with the feature `failpoints`.
//!
//! In every other build nothing is read, counted or compared.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use super::Error;

/// Before and after which the process may be asked to die: each is counted from 1 over the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// A write to the API server: before it is sent, or after its answer came.
    Write,
    /// An event of a watch: before the cache has it, or after it does and whoever it concerns is due.
    Event,
}

/// Something that has begun and whose end may be the process's.
#[must_use]
#[derive(Debug)]
pub struct Begun {
    failpoint: Failpoint,
    number: u64,
}

/// On which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

/// What is asked for, such as `after-write:3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Death {
    moment: Moment,
    failpoint: Failpoint,
    number: u64,
}

impl Death {
    fn parse(text: &str) -> Option<Self> {
        let (place, number) = text.split_once(':')?;
        let (moment, failpoint) = match place {
            "before-write" => (Moment::Before, Failpoint::Write),
            "after-write" => (Moment::After, Failpoint::Write),
            "before-event" => (Moment::Before, Failpoint::Event),
            "after-event" => (Moment::After, Failpoint::Event),
            _ => return None,
        };
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self {
            moment,
            failpoint,
            number,
        })
    }
}

/// What `INNKEEPER_FAILPOINT` says.
fn asked() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "config is the only reader of the environment"
    )]
    std::env::var("INNKEEPER_FAILPOINT").unwrap_or_default()
}

/// Refuses what is no place to die at: a test that thinks that it crashes the host should not pass because it does not.
pub(super) fn check_failpoint() -> Result<(), Error> {
    let text = if cfg!(feature = "failpoints") {
        asked()
    } else {
        String::new()
    };
    if text.is_empty() || Death::parse(&text).is_some() {
        Ok(())
    } else {
        Err(Error::Failpoint(text))
    }
}

impl Failpoint {
    /// Counts it; the process ends here if it is asked to.
    #[inline]
    pub fn begin(self) -> Begun {
        let number = if cfg!(feature = "failpoints") {
            static WRITES: AtomicU64 = AtomicU64::new(0);
            static EVENTS: AtomicU64 = AtomicU64::new(0);
            let count = match self {
                Self::Write => &WRITES,
                Self::Event => &EVENTS,
            };
            count.fetch_add(1, Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.die_if_asked(Moment::Before, number);
        Begun {
            failpoint: self,
            number,
        }
    }

    #[inline]
    fn die_if_asked(self, moment: Moment, number: u64) {
        if !cfg!(feature = "failpoints") {
            return;
        }
        static DEATH: LazyLock<Option<Death>> = LazyLock::new(|| Death::parse(&asked()));
        let here = Death {
            moment,
            failpoint: self,
            number,
        };
        if *DEATH == Some(here) {
            std::process::abort();
        }
    }
}

impl Begun {
    /// The process ends here if it is asked to.
    #[inline]
    pub fn end(self) {
        self.failpoint.die_if_asked(Moment::After, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_to_die() {
        let death = |moment, failpoint, number| {
            Some(Death {
                moment,
                failpoint,
                number,
            })
        };
        for (text, expected) in [
            ("before-write:3", death(Moment::Before, Failpoint::Write, 3)),
            ("after-write:1", death(Moment::After, Failpoint::Write, 1)),
            ("before-event:1", death(Moment::Before, Failpoint::Event, 1)),
            ("after-event:12", death(Moment::After, Failpoint::Event, 12)),
            ("", None),
            ("before-write", None),
            ("before-write:0", None),
            ("before-write:x", None),
            ("during-write:1", None),
        ] {
            assert_eq!(Death::parse(text), expected, "{text}");
        }
    }
}
