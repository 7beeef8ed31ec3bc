//! The program: hands its arguments over and ends with the code that comes back.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    innkeeper::command::start(env::args_os())
}
