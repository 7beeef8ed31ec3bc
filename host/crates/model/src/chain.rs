//! An error with everything that caused it, as one line.

use std::{error::Error, fmt, iter};

/// Shows an error and its sources: `failed to apply x: failed to connect: refused`.
///
/// For logs and conditions; errors themselves never repeat their source in their text.
pub struct Chain<'a>(&'a (dyn Error + 'static));

/// Shows an error with its sources.
pub fn error_chain<'a>(error: &'a (dyn Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// An error and its sources, from the outermost to the first.
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
            // Libraries like to repeat their source; people need it once.
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
