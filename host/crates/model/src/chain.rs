//! An error with all its causes, as one line.

use std::{error::Error, fmt, iter};

/// The display of an error and its sources: `failed to apply x: failed to connect: refused`.
///
/// Logs and conditions use it, because the text of an error never repeats its source.
pub struct Chain<'a>(&'a (dyn Error + 'static));

/// Returns the display of an error with its sources.
pub fn error_chain<'a>(error: &'a (dyn Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// Iterates over an error and its sources, from the outermost to the root cause.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.to_string();
        f.write_str(&shown)?;
        for error in causes(self.0).skip(1) {
            let text = error.to_string();
            // Some libraries repeat the source in their own text; it is shown only once.
            if !shown.contains(&text) {
                write!(f, ": {text}")?;
            }
            shown = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        #[source]
        source: Option<Box<Self>>,
    }

    #[test]
    fn names_every_cause_once() {
        let last = Step {
            text: "refused",
            source: None,
        };
        let repeats = Step {
            text: "failed to connect: refused",
            source: Some(Box::new(last)),
        };
        let first = Step {
            text: "failed to apply",
            source: Some(Box::new(repeats)),
        };
        assert_eq!(
            error_chain(&first).to_string(),
            "failed to apply: failed to connect: refused"
        );
    }
}
