//! Configuration: every value in force is of its kind, everything else is said in plain text.

use gswarm::fuzzed::configuration;

use crate::files::{check_printable, with_real_file};

/// Stands between the variables (`NAME=VALUE` lines) and the file.
const BETWEEN: &[u8] = b"---\n";

/// Lines of variables, a line `---`, then the configuration file.
pub fn config(bytes: &[u8]) {
    let at = bytes.windows(BETWEEN.len()).position(|window| window == BETWEEN);
    let (variables, file) = match at {
        Some(at) => (&bytes[..at], &bytes[at + BETWEEN.len()..]),
        None => (&[][..], bytes),
    };
    let variables: Vec<(String, String)> = String::from_utf8_lossy(variables)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match with_real_file(file, |path| configuration(path, &variables)) {
        Ok(read) => assert_eq!(read.wrong_in_force, Vec::<String>::new(), "wrong values in force"),
        Err(printed) => {
            assert!(printed.starts_with("error: "), "an error without a sentence");
            check_printable(&printed);
        },
    }
}
