//! The standard streams of a guest, as lines of its log.

use std::collections::VecDeque;

use crate::log::{LogBuffer, LogLevel};

/// A longer line is split, so that a guest that writes no line ends holds little memory. Chosen, not measured.
const LINE_BYTES_MAX: usize = 4096;
/// The number of the last lines of the error stream that form the message of a fault: a panic of Rust has its place and its
/// message on two lines, and advice on a third.
const LAST_LINES: usize = 3;

/// One of the two streams that can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandardStream {
    Output,
    Error,
}

impl StandardStream {
    /// The number by which a guest's handle is known.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Output => 1,
            Self::Error => 2,
        }
    }

    pub(super) const fn of(number: u32) -> Self {
        match number {
            2 => Self::Error,
            _ => Self::Output,
        }
    }

    /// Returns the level of its lines. The error stream has the message of a panic, which must reach the condition even when
    /// the log is full.
    pub(super) const fn level(self) -> LogLevel {
        match self {
            Self::Output => LogLevel::Info,
            Self::Error => LogLevel::Error,
        }
    }
}

/// Output that is not yet a whole line.
#[derive(Debug, Default)]
pub(crate) struct Output {
    said: Vec<u8>,
    warned: Vec<u8>,
    last: VecDeque<String>,
}

impl Output {
    /// Takes the next bytes of a stream.
    pub(crate) fn write(&mut self, stream: StandardStream, mut bytes: &[u8], log: &mut LogBuffer) {
        while !bytes.is_empty() {
            let line = self.line(stream);
            let room = &bytes[..bytes.len().min(LINE_BYTES_MAX - line.len())];
            let (piece, ends) = match room.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&room[..end], true),
                None => (room, false),
            };
            line.extend_from_slice(piece);
            let is_full = line.len() == LINE_BYTES_MAX;
            bytes = &bytes[piece.len() + usize::from(ends)..];
            if ends || is_full {
                self.end_line(stream, log);
            }
        }
    }

    /// Logs the last lines, which have no line end.
    pub(crate) fn finish(&mut self, log: &mut LogBuffer) {
        for stream in [StandardStream::Output, StandardStream::Error] {
            self.end_line(stream, log);
        }
    }

    fn line(&mut self, stream: StandardStream) -> &mut Vec<u8> {
        match stream {
            StandardStream::Output => &mut self.said,
            StandardStream::Error => &mut self.warned,
        }
    }

    fn end_line(&mut self, stream: StandardStream, log: &mut LogBuffer) {
        let line = std::mem::take(self.line(stream));
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            return;
        }
        if stream == StandardStream::Error {
            self.last.push_back(line.clone());
            if self.last.len() > LAST_LINES {
                self.last.pop_front();
            }
        }
        log.push(stream.level(), line);
        if stream == StandardStream::Error {
            let words: Vec<&str> = self.last.iter().map(String::as_str).collect();
            log.set_last_error(&words.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pieces: &[(StandardStream, &[u8])]) -> (Vec<(LogLevel, String)>, Option<String>) {
        let mut log = LogBuffer::new(64 * 1024);
        let mut output = Output::default();
        for (stream, piece) in pieces {
            output.write(*stream, piece, &mut log);
        }
        output.finish(&mut log);
        let last = log.take_last_error();
        let lines = log.into_parts().0.into_iter();
        (lines.map(|line| (line.level, line.message)).collect(), last)
    }

    #[test]
    fn pieces_become_lines() {
        let (lines, last) = written(&[
            (StandardStream::Output, b"one\ntw"),
            (StandardStream::Error, b"err"),
            (StandardStream::Output, b"o\r\n\nthree"),
        ]);
        let expected = [
            (LogLevel::Info, "one"),
            (LogLevel::Info, "two"),
            (LogLevel::Info, "three"),
            (LogLevel::Error, "err"),
        ]
        .map(|(level, line)| (level, line.to_owned()));
        assert_eq!(lines, expected);
        assert_eq!(last.as_deref(), Some("err"));
    }

    #[test]
    fn a_panic_is_told_with_its_place_and_its_message() {
        let (_, last) = written(&[(
            StandardStream::Error,
            b"early\nthread 'main' panicked at src/lib.rs:3:5:\nboom\nnote: run with a backtrace\n",
        )]);
        let expected = "thread 'main' panicked at src/lib.rs:3:5: boom note: run with a backtrace";
        assert_eq!(last.as_deref(), Some(expected));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_than_its_share() {
        let (lines, _) = written(&[(StandardStream::Output, &[b'x'; 10_000])]);
        let lengths: Vec<usize> = lines.iter().map(|(_, line)| line.len()).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let (lines, _) = written(&[(StandardStream::Output, b"a\xffb\n")]);
        assert_eq!(lines, [(LogLevel::Info, "a\u{fffd}b".to_owned())]);
    }
}
