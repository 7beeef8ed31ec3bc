//! The thread that runs a target: an input that hangs it must not hang the test as well.

use std::{
    any::Any,
    fs,
    panic::catch_unwind,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The longest CPU time for one input; the usual input takes less than a millisecond.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The time after which an input counts as endless. Twelve times [`TIME_MAX`], because a busy machine gives a thread less
/// than a whole processor.
const PATIENCE: Duration = Duration::from_mins(1);
/// The most memory that one input of at most [`BYTES_MAX`](super::edits::BYTES_MAX) bytes may add to the process.
const GROWTH_MAX: u64 = 256 << 20;

/// Held while an input is judged: the targets are threads of one process, whose memory is measured.
static ALONE: Mutex<()> = Mutex::new(());

/// A thread with a target. The target returns the parts of its checks that the input reached.
pub(super) struct Worker<const N: usize> {
    inputs: Sender<Vec<u8>>,
    verdicts: Receiver<Result<[bool; N], String>>,
    hangs: AtomicBool,
}

impl<const N: usize> Worker<N> {
    /// Starts the thread.
    pub(super) fn start(target: fn(&[u8]) -> [bool; N]) -> Self {
        let (inputs, received) = mpsc::channel::<Vec<u8>>();
        let (verdict, verdicts) = mpsc::channel();
        thread::spawn(move || {
            for input in received {
                if verdict.send(judge(target, &input)).is_err() {
                    return;
                }
            }
        });
        Self {
            inputs,
            verdicts,
            hangs: AtomicBool::new(false),
        }
    }

    /// Runs the target on an input. After an input that hangs, every other input passes, so that the first one is kept.
    pub(super) fn check(&self, input: &[u8]) -> Result<[bool; N], String> {
        if self.hangs.load(Ordering::Relaxed) {
            return Ok([true; N]);
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.inputs.send(input.to_vec());
        sent.map_err(|error| error.to_string())?;
        match self.verdicts.recv_timeout(PATIENCE) {
            Ok(verdict) => verdict,
            Err(RecvTimeoutError::Timeout) => {
                self.hangs.store(true, Ordering::Relaxed);
                Err(format!("not done after {PATIENCE:?}"))
            }
            Err(RecvTimeoutError::Disconnected) => Err("the thread is gone".to_owned()),
        }
    }
}

fn judge<const N: usize>(
    target: fn(&[u8]) -> [bool; N],
    input: &[u8],
) -> Result<[bool; N], String> {
    forget_peak();
    let (begun, before) = (cpu_time(), peak_bytes());
    let reached =
        catch_unwind(|| target(input)).map_err(|panic| format!("a panic: {}", message(&*panic)))?;
    let took = cpu_time().saturating_sub(begun);
    let grew = peak_bytes().saturating_sub(before);
    if took > TIME_MAX {
        return Err(format!("{} bytes took {took:?}", input.len()));
    }
    if grew > GROWTH_MAX {
        return Err(format!("{} bytes took {grew} bytes", input.len()));
    }
    Ok(reached)
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// The CPU time of this thread: the wall time of an input depends on what else the machine does.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Lowers the peak to the present use, where the kernel allows it; elsewhere an earlier peak hides smaller ones.
fn forget_peak() {
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// The largest resident memory of this process since the peak was lowered.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap() << 10
}

#[test]
fn an_earlier_input_does_not_hide_the_memory_of_a_later_one() {
    let worker = Worker::start(|_| [std::hint::black_box(vec![1_u8; 600 << 20]).len() > 1]);
    for _ in 0..2 {
        let problem = worker.check(b"input").unwrap_err();
        // How much it grew depends on what other tests free in the meantime.
        assert!(
            problem.starts_with("5 bytes took ") && problem.ends_with(" bytes"),
            "{problem}"
        );
    }
}
