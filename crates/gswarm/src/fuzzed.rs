//! Doors to parsers inside this crate for `gswarm-fuzz`; nobody else calls them.

use std::path::Path;

use crate::cmd;
use crate::config::{Environment, KEYS, Settings};
use crate::fault::judge;
use crate::units;

/// What became of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Values in force that are none of their kind; there must be none.
    pub wrong_in_force: Vec<String>,
    /// What is said about the rest.
    pub problems: Vec<String>,
}

/// Reads a file and variables as every command does; an error is the text that is printed.
pub fn configuration(file: &Path, variables: &[(String, String)]) -> Result<Configuration, String> {
    let environment: Environment = variables.iter().cloned().collect();
    let home = file.parent().unwrap_or_else(|| Path::new("/"));
    let settings = Settings::load(&environment, home, Some(file)).map_err(|e| printed(&e))?;
    let wrong = KEYS.iter().filter_map(|key| {
        let text = settings.text(key.path)?;
        key.kind.check(text).err().map(|why| format!("{}: {why}", key.path))
    });
    let wrong_in_force = wrong.collect();
    let mut problems: Vec<String> = settings.problems.iter().map(ToString::to_string).collect();
    problems.extend(settings.target(None).err().map(|error| printed(&error)));
    Ok(Configuration { wrong_in_force, problems })
}

/// What `gswarm profiler analyze` shows of a file, or why it cannot.
pub fn analyze(file: &Path) -> Result<String, String> {
    cmd::analysis_text(file).map_err(|error| printed(&error))
}

/// A size such as `10GB`.
pub fn bytes(text: &str) -> Option<u64> {
    units::parse_bytes(text).ok()
}

/// A sampling period such as `500ms`, in milliseconds.
pub fn period_millis(text: &str) -> Option<i64> {
    units::parse_period(text).ok().map(gswarm_types::Period::millis)
}

fn printed(error: &anyhow::Error) -> String {
    judge(error).map_or_else(String::new, |verdict| verdict.text)
}
