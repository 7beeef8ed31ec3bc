//! Where a crash test wants the process to die.

use super::Error;

/// Dies at a write to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failpoint {
    /// Before the write is sent, or after its answer came.
    pub moment: Moment,
    /// Which write, counted from 1 over the life of the process.
    pub write: u64,
}

/// On which side of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The API server never hears of it.
    Before,
    /// The API server has done it, and the host forgets that it asked.
    After,
}

impl Failpoint {
    /// Reads `before:N` or `after:N`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Failpoint(text.to_owned());
        let (moment, write) = text.split_once(':').ok_or_else(wrong)?;
        let moment = match moment {
            "before" => Moment::Before,
            "after" => Moment::After,
            _ => return Err(wrong()),
        };
        match write.parse() {
            Ok(write) if write > 0 => Ok(Self { moment, write }),
            _ => Err(wrong()),
        }
    }

    /// What `INNKEEPER_FAILPOINT` asks for; always nothing in a build without the feature `failpoints`.
    pub(super) fn from_environment() -> Result<Option<Self>, Error> {
        if !cfg!(feature = "failpoints") {
            return Ok(None);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "config is the only reader of the environment"
        )]
        let text = std::env::var("INNKEEPER_FAILPOINT").unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        Self::parse(&text).map(Some)
    }
}
