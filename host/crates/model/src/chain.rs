//! An error with all causes, as one line.

use std::{error::Error, fmt, iter};

/// Displays an error and all sources: `failed to apply x: failed to connect: refused`.
///
/// Logs and conditions use it, because an error's own text never repeats the source.
pub fn error_chain(error: &(dyn Error + 'static)) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut shown = error.to_string();
        f.write_str(&shown)?;
        for error in causes(error).skip(1) {
            let text = error.to_string();
            // Some libraries repeat the source in their own text; it is shown only once.
            if !shown.contains(&text) {
                write!(f, ": {text}")?;
            }
            shown = text;
        }
        Ok(())
    })
}

/// Iterates over an error and all sources, from the outermost to the root cause.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
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
