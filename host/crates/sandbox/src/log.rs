//! Guest logs: bounded per pass and per second, and returned to the caller, which knows the parent.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::{Duration, Instant},
};

use innkeeper_model::{Rate, TokenBucket};

/// A line's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
#[strum(serialize_all = "camelCase")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something looks wrong.
    Warn,
    /// Progress, for operators.
    Info,
    /// Details for the plugin's author.
    Debug,
}

/// A line that a guest logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The level.
    pub level: LogLevel,
    /// The text as the guest wrote it.
    pub message: String,
}

/// The lines and bytes beyond the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Lines that were dropped or cut off.
    pub lines: u64,
    /// Bytes that were dropped.
    pub bytes: u64,
}

impl Dropped {
    fn count(&mut self, bytes: usize) {
        self.lines += 1;
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// A line's cost beside the text, so that empty lines are bounded too. About as much as the level and the length that
/// the host keeps for each line.
const LINE_OVERHEAD_BYTES: usize = 16;

/// The most bytes kept from the last error beside the log: the host's conditions have 2,048 characters at most.
const LAST_ERROR_BYTES_MAX: usize = 2048;

/// A longer line in a standard stream is split, so that a guest that writes no line ends holds little memory.
const LINE_BYTES_MAX: usize = 4096;

/// The number of last lines from the error stream that form a fault's message: a Rust panic has the place and the
/// message on two lines, and advice on a third.
const LAST_LINES: usize = 3;

/// Words in a panic's first line: in Rust, the message follows, and in Go, the stack.
const PANIC_WORDS: [&str; 3] = [" panicked at ", "panic: ", "fatal error: "];

/// One pass's log.
#[derive(Debug)]
pub(super) struct LogBuffer {
    lines: Vec<LogLine>,
    dropped: Dropped,
    bytes_left: usize,
    /// Each standard stream's unfinished line, by level.
    unfinished: BTreeMap<LogLevel, Vec<u8>>,
    /// The error stream's last lines; from a panic's first line on, the first ones.
    last_lines: VecDeque<String>,
    panics: bool,
    /// The line at level error that came last: a guest's panic hook writes its message before the trap.
    last_error: Option<String>,
}

impl LogBuffer {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            lines: Vec::new(),
            dropped: Dropped::default(),
            bytes_left: bytes_max,
            unfinished: BTreeMap::new(),
            last_lines: VecDeque::new(),
            panics: false,
            last_error: None,
        }
    }

    /// Returns true if a line's text would be used, so that the caller copies it only then.
    pub(super) fn takes(&self, level: LogLevel) -> bool {
        level == LogLevel::Error || self.bytes_left > LINE_OVERHEAD_BYTES
    }

    /// Appends a line, cut off at the pass's limit.
    pub(super) fn push(&mut self, level: LogLevel, mut message: String) {
        if level == LogLevel::Error {
            // Before the limit: a panic's message has to reach the parent's condition even when the log is full.
            self.last_error = Some(cut(&message, LAST_ERROR_BYTES_MAX).to_owned());
        }
        let Some(room) = self.bytes_left.checked_sub(LINE_OVERHEAD_BYTES + 1) else {
            self.dropped.count(message.len());
            return;
        };
        let length = cut(&message, room + 1).len();
        if length < message.len() {
            self.dropped.count(message.len() - length);
            message.truncate(length);
            // The text may have been as large as an answer.
            message.shrink_to_fit();
            self.bytes_left = 0;
        } else {
            self.bytes_left -= length + LINE_OVERHEAD_BYTES;
        }
        self.lines.push(LogLine { level, message });
    }

    /// Appends bytes from the standard stream whose lines have this level.
    pub(super) fn write(&mut self, level: LogLevel, bytes: &[u8]) {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        for piece in lines.flat_map(|line| line.chunks(LINE_BYTES_MAX)) {
            let line = self.unfinished.entry(level).or_default();
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                self.end_line(level);
            }
        }
    }

    /// Appends the standard streams' last lines, which have no line end.
    pub(super) fn finish(&mut self) {
        self.end_line(LogLevel::Info);
        self.end_line(LogLevel::Error);
    }

    fn end_line(&mut self, level: LogLevel) {
        let line = self.unfinished.remove(&level).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            return;
        }
        self.push(level, line.clone());
        if level == LogLevel::Error {
            if PANIC_WORDS.iter().any(|words| line.contains(words)) {
                self.panics = true;
                self.last_lines.clear();
            }
            // After a panic, its first lines count: in Go, a stack of any length follows.
            if !self.panics && self.last_lines.len() == LAST_LINES {
                self.last_lines.pop_front();
            }
            if self.last_lines.len() < LAST_LINES {
                self.last_lines.push_back(line);
            }
            let words = self.last_lines.make_contiguous().join(" ");
            self.last_error = Some(cut(&words, LAST_ERROR_BYTES_MAX).to_owned());
        }
    }

    /// Counts a line that was not copied.
    pub(super) fn drop_line(&mut self, bytes: usize) {
        self.dropped.count(bytes);
    }

    pub(super) fn take_last_error(&mut self) -> Option<String> {
        self.last_error.take()
    }

    pub(super) fn take(&mut self) -> (Vec<LogLine>, Dropped) {
        (mem::take(&mut self.lines), self.dropped)
    }
}

/// A plugin's log rate over all passes, in bytes; the burst is one second's bytes.
#[derive(Debug, Default)]
pub(super) struct LogRate {
    bucket: parking_lot::Mutex<TokenBucket<Instant>>,
}

impl LogRate {
    /// Keeps the lines within the plugin's rate and counts the others.
    pub(super) fn admit(
        &self,
        bytes_per_second_max: usize,
        lines: Vec<LogLine>,
        dropped: &mut Dropped,
        now: Instant,
    ) -> Vec<LogLine> {
        let rate = Rate {
            burst: u64::try_from(bytes_per_second_max).unwrap_or(u64::MAX),
            refill: Duration::from_secs(1),
        };
        let mut bucket = self.bucket.lock();
        lines
            .into_iter()
            .filter(|line| {
                let cost = line.message.len() + LINE_OVERHEAD_BYTES;
                let admitted =
                    u64::try_from(cost).is_ok_and(|cost| bucket.take_all(cost, rate, now));
                if !admitted {
                    dropped.count(line.message.len());
                }
                admitted
            })
            .collect()
    }
}

/// Returns the longest prefix with at most this many bytes that ends between characters.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: usize) -> LogLine {
        LogLine {
            level: LogLevel::Info,
            message: "x".repeat(bytes),
        }
    }

    #[test]
    fn a_pass_keeps_what_fits_and_counts_the_rest() {
        let mut log = LogBuffer::new(100);
        log.push(LogLevel::Info, "x".repeat(50));
        log.push(LogLevel::Info, "ä".repeat(50));
        log.push(LogLevel::Error, "the last words".to_owned());
        assert_eq!(log.take_last_error().as_deref(), Some("the last words"));
        let (lines, dropped) = log.take();
        let lengths: Vec<usize> = lines.iter().map(|line| line.message.len()).collect();
        // 100 - (50 + 16) - 16 leaves 18 bytes, which is nine two-byte characters.
        assert_eq!(lengths, [50, 18]);
        assert_eq!(
            dropped,
            Dropped {
                lines: 2,
                bytes: 82 + 14
            }
        );
    }

    #[test]
    fn empty_lines_are_bounded() {
        let mut log = LogBuffer::new(1600);
        for _ in 0..1000 {
            log.push(LogLevel::Debug, String::new());
        }
        let (lines, dropped) = log.take();
        assert!(lines.len() <= 100, "{}", lines.len());
        assert_eq!(dropped.lines, 1000 - u64::try_from(lines.len()).unwrap());
    }

    fn written(pieces: &[(LogLevel, &[u8])]) -> (Vec<(LogLevel, String)>, Option<String>) {
        let mut log = LogBuffer::new(64 * 1024);
        for (level, piece) in pieces {
            log.write(*level, piece);
        }
        log.finish();
        let last = log.take_last_error();
        let lines = log.take().0.into_iter();
        (lines.map(|line| (line.level, line.message)).collect(), last)
    }

    #[test]
    fn pieces_become_lines() {
        let (lines, last) = written(&[
            (LogLevel::Info, b"one\ntw"),
            (LogLevel::Error, b"err"),
            (LogLevel::Info, b"o\r\n\nthree"),
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
            LogLevel::Error,
            b"early\nthread 'main' panicked at src/lib.rs:3:5:\nboom\nnote: run with a backtrace\n",
        )]);
        let expected = "thread 'main' panicked at src/lib.rs:3:5: boom note: run with a backtrace";
        assert_eq!(last.as_deref(), Some(expected));
    }

    #[test]
    fn a_panic_is_told_without_its_stack() {
        let (_, last) = written(&[(
            LogLevel::Error,
            b"early\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/main.go:7 +0x2\nexit status 2\n",
        )]);
        let expected = "panic: boom goroutine 1 [running]: main.main()";
        assert_eq!(last.as_deref(), Some(expected));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_than_its_share() {
        let (lines, _) = written(&[(LogLevel::Info, &[b'x'; 10_000])]);
        let lengths: Vec<usize> = lines.iter().map(|(_, line)| line.len()).collect();
        assert_eq!(lengths, [4096, 4096, 1808]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let (lines, _) = written(&[(LogLevel::Info, b"a\xffb\n")]);
        assert_eq!(lines, [(LogLevel::Info, "a\u{fffd}b".to_owned())]);
    }

    #[test]
    fn the_rate_refills_with_time() {
        let rate = LogRate::default();
        let start = Instant::now();
        let mut dropped = Dropped::default();
        let lines = rate.admit(100, vec![line(60), line(60)], &mut dropped, start);
        assert_eq!((lines.len(), dropped.lines), (1, 1));
        let soon = start + Duration::from_millis(100);
        assert!(
            rate.admit(100, vec![line(60)], &mut dropped, soon)
                .is_empty()
        );
        let later = start + Duration::from_secs(5);
        let lines = rate.admit(100, vec![line(60), line(60)], &mut dropped, later);
        assert_eq!(lines.len(), 1);
    }
}
