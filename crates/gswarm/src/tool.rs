//! Which of the two command lines speaks, and how `gsprof` spells what is said in words of `gswarm`.
//!
//! Hints come from everywhere, also from the host, which does not know what its user typed. So they
//! are written once, for `gswarm`, and respelled where text leaves the process.

use std::borrow::Cow;
use std::sync::OnceLock;

/// The program that the user typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Gswarm,
    Gsprof,
}

/// Said once by `main`; printing has no other way to know.
static SPEAKER: OnceLock<Tool> = OnceLock::new();

/// Commands that both have. What only `gswarm` has keeps its full name, which works as it stands.
const COMMANDS: [(&str, &str); 13] = [
    ("profiler sessions", "recover --list"),
    ("profiler recover", "recover"),
    ("profiler export", "recover --export"),
    ("profiler analyze", "stat"),
    ("profiler start", "profile"),
    ("profiler status", "status"),
    ("profiler stop", "stop"),
    ("client connect", "connect"),
    ("host start", "start"),
    ("host status", "status"),
    ("host stop", "exit"),
    ("status", "status"),
    ("join", "connect"),
];

/// Flags that `gsprof` does not have or takes otherwise.
const PHRASES: [(&str, &str); 3] = [
    (
        "--port, --http-port and --model-port (0 turns the last two off)",
        "--port and --http-port (0 turns the last one off)",
    ),
    ("--port, --http-port and --model-port", "--port and --http-port"),
    ("with --host ADDR or GSWARM_HOST", "in the command line or with GSWARM_HOST"),
];

impl Tool {
    /// From now on everything printed is in the words of this tool.
    pub(crate) fn speak(self) {
        // A second call could only come from a second main.
        let _first = SPEAKER.set(self);
    }
}

/// The text as the user's own tool would say it.
pub(crate) fn spelled(text: &str) -> Cow<'_, str> {
    match SPEAKER.get() {
        Some(Tool::Gsprof) => Cow::Owned(as_gsprof(text)),
        Some(Tool::Gswarm) | None => Cow::Borrowed(text),
    }
}

fn as_gsprof(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("gswarm ") {
        out.push_str(before);
        match COMMANDS.iter().find_map(|(ours, theirs)| Some((theirs, words_after(after, ours)?))) {
            Some((theirs, tail)) => {
                let end = tail.find(['`', '\n']).unwrap_or(tail.len());
                let (flags, later) = tail.split_at(end);
                out.push_str("gsprof ");
                out.push_str(theirs);
                out.push_str(&flags_of(theirs, flags));
                rest = later;
            },
            None => {
                out.push_str("gswarm ");
                rest = after;
            },
        }
    }
    out.push_str(rest);
    PHRASES.iter().fold(out, |text, (ours, theirs)| text.replace(ours, theirs))
}

/// What follows the words, where they are whole words.
fn words_after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let tail = text.strip_prefix(words)?;
    let goes_on = tail.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    (!goes_on).then_some(tail)
}

/// `recover` names its file itself and takes `--host`; the others take the host as it is.
fn flags_of(command: &str, flags: &str) -> String {
    if !command.starts_with("recover") {
        return flags.replace(" --host ", " ");
    }
    match flags.split_once(" -o ") {
        Some((before, after)) => {
            let later = after.split_once(' ').map(|(_file, later)| format!(" {later}"));
            format!("{before}{}", later.unwrap_or_default())
        },
        None => flags.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;
    use crate::args::gsprof::Gsprof;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(as_gsprof(text), expected);
    }

    #[test]
    fn commands_are_those_of_gsprof() {
        check("`gswarm profiler sessions` lists them", "`gsprof recover --list` lists them");
        check(
            "gone: try `gswarm profiler export --name a -o a.json`, or not",
            "gone: try `gsprof recover --export --name a`, or not",
        );
        check("`gswarm profiler export -o F --name a`", "`gsprof recover --export --name a`");
        check("see `gswarm status --host h:1` and its log", "see `gsprof status h:1` and its log");
        check(
            "start one with `gswarm host start` (`gswarm up` for host and agent)",
            "start one with `gsprof start` (`gswarm up` for host and agent)",
        );
        check("next: gswarm join localhost:1", "next: gsprof connect localhost:1");
        check("no gswarm host answers", "no gswarm host answers");
        check("the gswarm host stopped", "the gswarm host stopped");
        check("gswarm", "gswarm");
    }

    #[test]
    fn both_spellings_exist() {
        for (ours, theirs) in COMMANDS {
            let mut command = &Cli::command();
            for word in ours.split(' ') {
                command = command.find_subcommand(word).unwrap();
            }
            let mut words = theirs.split(' ');
            let head = Gsprof::command();
            let command = head.find_subcommand(words.next().unwrap()).unwrap();
            for flag in words {
                let long = flag.strip_prefix("--");
                assert!(command.get_arguments().any(|argument| argument.get_long() == long));
            }
        }
    }
}
