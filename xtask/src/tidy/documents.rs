//! Documents that are generated: compared with what they should say, or written.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;

use super::workspace::Workspace;
use super::{Documents, Finding, LAYERS, layers, metrics};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const METRICS: &str = "docs/metrics.md";

const BEGIN: &str = "<!-- layers:begin -->";
const END: &str = "<!-- layers:end -->";

/// Compares every generated document, or brings it up to date.
pub(super) fn check(workspace: &Workspace, mode: Documents) -> anyhow::Result<Vec<Finding>> {
    let picture = layers::picture(LAYERS, &workspace.crates);
    let generated = [
        (ARCHITECTURE, with_section(&read(&workspace.root, ARCHITECTURE)?, &picture)),
        (METRICS, metrics::page()),
    ];
    let mut findings = Vec::new();
    for (path, wanted) in generated {
        let found = read(&workspace.root, path)?;
        if found == wanted {
            continue;
        }
        match mode {
            Documents::Write => {
                std::fs::write(workspace.root.join(path), wanted)
                    .with_context(|| format!("cannot write `{path}`"))?;
                println!("tidy: wrote {path}");
            },
            Documents::Compare => {
                let line = first_difference(&found, &wanted);
                findings.push(Finding::new(
                    path,
                    line,
                    "generated text is out of date: run `make docs`",
                ));
            },
        }
    }
    Ok(findings)
}

/// A document that does not exist yet is an empty one.
fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    match std::fs::read_to_string(root.join(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("cannot read `{path}`")),
    }
}

/// The document with the text between the markers replaced, or with the section appended.
fn with_section(document: &str, section: &str) -> String {
    let section = format!("{BEGIN}\n{section}{END}");
    let parts = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    match parts {
        Some((before, after)) => format!("{before}{section}{after}"),
        None if document.is_empty() => format!("# Architecture\n\n## Layers\n\n{section}\n"),
        None => format!("{}\n\n## Layers\n\n{section}\n", document.trim_end()),
    }
}

fn first_difference(found: &str, wanted: &str) -> usize {
    found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_section(document: &str, expected: &str) {
        let mark = |text: &str| text.replace("<b>", BEGIN).replace("<e>", END);
        let written = with_section(&mark(document), "new\n");
        assert_eq!(written, mark(expected));
        assert_eq!(with_section(&written, "new\n"), written, "a second run changes nothing");
    }

    #[test]
    fn the_section_is_replaced_between_its_markers() {
        check_section("# A\n<b>\nold\n<e>\nrest\n", "# A\n<b>\nnew\n<e>\nrest\n");
    }

    #[test]
    fn the_section_is_appended_where_there_is_none() {
        check_section("", "# Architecture\n\n## Layers\n\n<b>\nnew\n<e>\n");
        check_section("# A\n", "# A\n\n## Layers\n\n<b>\nnew\n<e>\n");
    }

    #[test]
    fn the_first_difference_has_a_line() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), 2);
        assert_eq!(first_difference("", "a\n"), 1);
    }
}
