//! `gsprof`: the old profiler's command line over the same code.

use std::process::ExitCode;

fn main() -> ExitCode {
    gswarm::main_gsprof()
}
