//! Chores of the repository, run as `cargo xtask CHORE`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the terminal")]

use std::process::ExitCode;

mod tidy;

const USAGE: &str = "usage: cargo xtask tidy [--write]

  tidy           check the rules no compiler knows: layers, purity, file shape, documents
  tidy --write   bring the generated documents up to date first";

fn main() -> anyhow::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match *args {
        ["tidy"] => tidy::run(tidy::Documents::Compare),
        ["tidy", "--write"] => tidy::run(tidy::Documents::Write),
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        },
    }
}
