//! `gswarm`: see, measure and act on the GPUs of several machines.

use std::process::ExitCode;

fn main() -> ExitCode {
    gswarm::main_gswarm()
}
