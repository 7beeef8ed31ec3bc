//! Scripts in place of the compiling process: what follows from each way in which it can end.
//!
//! That the real one keeps itself within bounds is tested with the real program.

use std::{
    fs::{self, File, FileTimes},
    num::NonZeroU32,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use innkeeper_model::{PluginReason, Retry};

use super::*;
use crate::{
    artifact::{Cache, CompileBounds, CompileVerdict, Compiler, Error, Limits, Program},
    engine,
    testing::{self, guest},
};

const BOUNDS: CompileBounds = CompileBounds {
    processes_max: NonZeroU32::MIN,
    memory_bytes_max: 1 << 30,
    cpu_seconds_max: 7,
    code_bytes_max: 1 << 20,
    wall_max: Duration::from_mins(1),
    retries_max: 3,
};

/// A directory with a cache and the processes' traces.
struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let case = Self { dir };
        fs::write(case.path("code"), code()).unwrap();
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A compiler whose processes run a script; `$DIR` stands for the directory.
    fn compiler(&self, script: &str, bounds: CompileBounds) -> Compiler {
        let begin = "echo $$ >>$DIR/runs; cat >/dev/null;";
        let script = format!("{begin} {script}").replace("$DIR", self.dir.path().to_str().unwrap());
        let cache = Cache::open(&self.path("cache")).unwrap();
        Compiler::new(cache, testing::script(&script), bounds)
    }

    fn compile(&self, script: &str) -> Result<artifact::Artifact, Error> {
        compile(&self.compiler(script, BOUNDS))
    }

    /// The processes that there were.
    fn runs(&self) -> Vec<String> {
        fs::read_to_string(self.path("runs"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns the file suffixes in the cache.
    fn kept(&self) -> Vec<String> {
        let ending = |path: PathBuf| path.extension()?.to_str().map(str::to_owned);
        let entries = fs::read_dir(self.path("cache")).unwrap();
        let mut suffixes: Vec<String> = entries
            .filter_map(|entry| ending(entry.unwrap().path()))
            .collect();
        suffixes.sort();
        suffixes
    }
}

fn compile(compiler: &Compiler) -> Result<artifact::Artifact, Error> {
    compiler.compile(&ENGINE, &guest().build(), &Limits::default())
}

/// Returns the code that the real process compiles from the guest.
fn code() -> Vec<u8> {
    engine::compiler(Metering::Epochs)
        .unwrap()
        .precompile_component(&guest().build())
        .unwrap()
}

fn check_runs(artifact: &artifact::Artifact) {
    Described::load(&ENGINE, artifact, &innkeeper_model::Limits::default()).unwrap();
}

#[test]
fn code_of_another_process_runs_and_is_kept() {
    let case = Case::new();
    for _ in 0..2 {
        check_runs(&case.compile("cat $DIR/code").unwrap());
        assert_eq!(case.runs().len(), 1);
        assert_eq!(case.kept(), ["cwasm", "sum"]);
    }
}

#[test]
fn a_process_knows_its_bounds_and_nothing_else() {
    let case = Case::new();
    let script =
        "echo \"$@\" >$DIR/arguments; env >$DIR/environment; pwd >$DIR/place; cat $DIR/code";
    case.compile(script).unwrap();
    let read = |name: &str| fs::read_to_string(case.path(name)).unwrap();
    // A shell takes the first argument for the name.
    let expected = format!(
        "--cpu-seconds-max=7 --code-bytes-max=1048576 --threads=1 --host-process={}\n",
        std::process::id()
    );
    assert_eq!(read("arguments"), expected);
    assert_eq!(read("place"), "/\n");
    // Variables that a shell sets itself.
    let own = ["PWD=", "SHLVL=", "_=", "OLDPWD="];
    let environment = read("environment");
    let foreign = environment
        .lines()
        .find(|line| !own.iter().any(|name| line.starts_with(name)));
    assert_eq!(foreign, None, "{environment}");
}

#[test]
fn an_engine_that_counts_fuel_gets_code_that_does() {
    let case = Case::new();
    let compiler = case.compiler("echo \"$@\" >$DIR/arguments; exit 3", BOUNDS);
    let metered = engine(Metering::Fuel);
    let refused = compiler.compile(&metered, &guest().build(), &Limits::default());
    assert!(refused.is_err());
    let arguments = fs::read_to_string(case.path("arguments")).unwrap();
    assert!(arguments.contains(" --fuel "), "{arguments}");
}

/// How the script ends is the verdict on the bytes, and the next attempt needs no process.
#[track_caller]
fn check_found(script: &str, expected: &str) {
    let case = Case::new();
    for _ in 0..2 {
        let error = case.compile(script).err().unwrap();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.retry(), Retry::OnChange);
        assert_eq!(case.runs().len(), 1);
        assert_eq!(case.kept(), ["refused"]);
    }
}

#[test]
fn what_the_compiler_refuses_is_remembered() {
    check_found(
        "echo first >&2; echo 'error: there is no such thing' >&2; exit 3",
        "the compiler refused the component: there is no such thing",
    );
}

#[test]
fn what_takes_too_much_cpu_time_is_remembered() {
    check_found(
        "kill -XCPU $$",
        "compiling the component takes more than 7 s of CPU time: make it smaller, its largest functions first",
    );
}

#[test]
fn what_takes_too_much_memory_is_remembered() {
    let expected = "compiling the component takes more than 1024 MiB of memory, which is half of the memory limit of the Pod: raise resources.limits.memory of the host above 2048 MiB";
    check_found(
        "echo 'memory allocation of 64 bytes failed' >&2; echo 'note: run again' >&2; kill -ABRT $$",
        expected,
    );
    check_found(
        "echo 'error: out of memory (failed to allocate 64 bytes)' >&2; exit 3",
        expected,
    );
}

#[test]
fn what_becomes_too_much_code_is_remembered() {
    check_found(
        "kill -XFSZ $$",
        "compiling the component takes more than 1048576 bytes of native code: make it smaller, its largest functions first",
    );
}

#[test]
fn what_breaks_the_compiler_is_remembered() {
    check_found(
        "echo 'no such register' >&2; exit 101",
        "the compiler failed on the component: no such register",
    );
    let error = Case::new().compile("kill -SEGV $$").err().unwrap();
    assert!(
        matches!(error, Error::Verdict(CompileVerdict::Broke(_))),
        "{error}"
    );
}

#[test]
fn what_makes_the_compiler_reach_out_of_its_process_is_remembered() {
    check_found(
        "echo 'confined: seccomp' >&2; kill -SYS $$",
        "the compiler was stopped because it reached out of its process, which no harmless component causes: do not run the component, and report it to the maintainers of Innkeeper",
    );
}

/// A container profile that ends a process when it confines itself.
#[test]
fn a_process_that_is_stopped_before_it_is_confined_is_no_verdict() {
    let case = Case::new();
    let error = case
        .compile("echo 'unconfined: seccomp' >&2; kill -SYS $$")
        .err()
        .unwrap();
    assert!(matches!(error, Error::RunCompiler(_)), "{error}");
    assert_eq!(error.retry(), Retry::Backoff);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("landlock_create_ruleset"), "{source}");
    assert_eq!(case.kept(), <[&str; 0]>::default());
}

/// The process's standard output is a file in the cache directory.
#[test]
fn a_full_disk_is_a_fault_of_the_cache_directory() {
    let case = Case::new();
    let script = "echo 'error: failed to write the compiled code: No space left' >&2; exit 4";
    let error = case.compile(script).err().unwrap();
    let path = case.path("cache").canonicalize().unwrap();
    let expected = format!(
        "failed to keep the compiled component in the cache directory {}: give it more space, or choose another with --cache-dir",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.ends_with("No space left"), "{source}");
    assert_eq!(error.retry(), Retry::Backoff);
    assert_eq!(case.kept(), <[&str; 0]>::default());
}

#[test]
fn what_no_engine_of_this_host_takes_is_remembered() {
    let case = Case::new();
    for _ in 0..2 {
        let error = case.compile("echo no code").err().unwrap();
        assert!(
            matches!(error, Error::Verdict(CompileVerdict::Refused(_))),
            "{error}"
        );
        assert_eq!(case.runs().len(), 1);
    }
}

#[test]
fn a_process_computes_where_no_other_does() {
    let case = Case::new();
    let bounds = CompileBounds {
        processes_max: NonZeroU32::MIN.saturating_add(2),
        ..BOUNDS
    };
    // Each keeps the permit until all three have written their arguments.
    let script = "echo $3 >>$DIR/told; \
                  while [ $(wc -l <$DIR/told) -lt 3 ]; do sleep 0.01; done; cat $DIR/code";
    let compiler = case.compiler(script, bounds);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| check_runs(&compile(&compiler).unwrap()));
        }
    });
    let lines = fs::read_to_string(case.path("told")).unwrap();
    let mut arguments: Vec<&str> = lines.lines().collect();
    arguments.sort_unstable();
    assert_eq!(arguments, ["--threads=1", "--threads=2", "--threads=3"]);
}

#[test]
fn other_bounds_are_another_question() {
    let case = Case::new();
    case.compile("kill -XCPU $$").err().unwrap();
    let bounds = CompileBounds {
        cpu_seconds_max: 8,
        ..BOUNDS
    };
    check_runs(&compile(&case.compiler("cat $DIR/code", bounds)).unwrap());
}

#[test]
fn a_process_that_was_killed_is_started_again_three_times() {
    let case = Case::new();
    for attempts in [4, 8] {
        let error = case.compile("kill -KILL $$").err().unwrap();
        let Error::CompilerKilled { times: 4, cause } = &error else {
            panic!("{error}");
        };
        assert!(cause.contains("SIGKILL"), "{cause}");
        assert_eq!(error.retry(), Retry::Backoff);
        // It says nothing about the bytes, so that nothing is remembered.
        assert_eq!(case.runs().len(), attempts);
        assert_eq!(case.kept(), <[&str; 0]>::default());
    }
    let last = "[ $(wc -l <$DIR/runs) = 12 ] && cat $DIR/code || kill -KILL $$";
    check_runs(&case.compile(last).unwrap());
}

#[test]
fn a_process_that_does_not_end_is_killed() {
    let case = Case::new();
    let bounds = CompileBounds {
        wall_max: Duration::from_millis(200),
        ..BOUNDS
    };
    let started = Instant::now();
    let error = compile(&case.compiler("exec sleep 600", bounds))
        .err()
        .unwrap();
    assert!(
        matches!(error, Error::CompilerKilled { times: 4, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("more than 0.2 s"), "{error}");
    assert!(started.elapsed() < Duration::from_mins(1));
    for process in case.runs() {
        let process_dir = Path::new("/proc").join(&process);
        assert!(!process_dir.exists(), "{process} is still there");
    }
}

#[test]
fn what_the_host_lacks_is_no_verdict() {
    let case = Case::new();
    let error = case
        .compile("echo 'error: no such limit' >&2; exit 1")
        .err()
        .unwrap();
    assert!(matches!(error, Error::RunCompiler { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Backoff);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "no such limit");
    assert_eq!(case.kept(), <[&str; 0]>::default());
    let program = Program {
        path: case.path("no such program"),
        arguments: Vec::new(),
    };
    let cache = Cache::open(&case.path("cache")).unwrap();
    let error = compile(&Compiler::new(cache, program, BOUNDS))
        .err()
        .unwrap();
    assert!(matches!(error, Error::RunCompiler { .. }), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("/no such program: No such file"),
        "{source}"
    );
}

#[test]
fn no_more_than_so_many_compile_at_a_time() {
    let case = Case::new();
    let bounds = CompileBounds {
        retries_max: 0,
        ..BOUNDS
    };
    let script = "echo begin >>$DIR/order; sleep 0.2; echo end >>$DIR/order; kill -KILL $$";
    let compiler = case.compiler(script, bounds);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| compile(&compiler).err().unwrap());
        }
    });
    let order = fs::read_to_string(case.path("order")).unwrap();
    assert_eq!(order, "begin\nend\n".repeat(3));
}

#[test]
fn nothing_that_is_refused_without_compiling_gets_a_process() {
    let case = Case::new();
    let compiler = case.compiler("exit 3", BOUNDS);
    let limits = Limits {
        functions_max: 0,
        ..Limits::default()
    };
    let error = compiler
        .compile(&ENGINE, &guest().build(), &limits)
        .err()
        .unwrap();
    assert!(matches!(error, Error::TooComplex { .. }), "{error}");
    assert_eq!(error.reason(), PluginReason::CompileLimitExceeded);
    assert_eq!(case.runs(), <[&str; 0]>::default());
}

#[test]
fn what_a_killed_host_left_unfinished_is_swept_when_it_is_old() {
    let case = Case::new();
    let cache = case.path("cache");
    drop(Cache::open(&cache).unwrap());
    let leave = |name: &str, age: Duration| {
        let file = File::create(cache.join(name)).unwrap();
        let then = SystemTime::UNIX_EPOCH + now().saturating_sub(age);
        file.set_times(FileTimes::new().set_modified(then)).unwrap();
    };
    leave(".new-old", Duration::from_hours(2));
    leave(".new-young", Duration::from_secs(1));
    leave("old.cwasm", Duration::from_hours(2));
    drop(Cache::open(&cache).unwrap());
    let mut names: Vec<_> = fs::read_dir(&cache)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, [".new-young", "old.cwasm"]);
}

/// Since the epoch.
fn now() -> Duration {
    Duration::from_millis(jiff::Timestamp::now().as_millisecond().unsigned_abs())
}

#[test]
fn compilers_share_half_of_the_memory() {
    let on = |processors: u32, memory| {
        let bounds = CompileBounds::on(processors.try_into().unwrap(), memory);
        (bounds.processes_max.get(), bounds.memory_bytes_max)
    };
    assert_eq!(on(8, None), (8, 2 << 30));
    assert_eq!(on(8, Some(8 << 30)), (2, 2 << 30));
    assert_eq!(on(1, Some(8 << 30)), (1, 2 << 30));
    assert_eq!(on(8, Some(1 << 30)), (1, 512 << 20));
    assert_eq!(on(8, Some(0)), (1, 0));
}
