//! Asks for a secret without showing it.

use std::io::{self, BufRead, Write};

use gswarm_tls::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};

/// Shows what is typed again, whatever happens.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _gone = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// One line from the terminal, or from a pipe.
pub(crate) fn ask_secret(question: &str) -> io::Result<Secret> {
    let mut line = String::new();
    if isatty(io::stdin()) {
        let mut out = io::stderr();
        write!(out, "{question}: ")?;
        out.flush()?;
        let quiet = Quiet::new()?;
        io::stdin().lock().read_line(&mut line)?;
        drop(quiet);
        writeln!(out)?;
    } else {
        io::stdin().lock().read_line(&mut line)?;
    }
    Ok(Secret::new(line.trim()))
}
