//! No path of one developer's machine in the repository.

use std::path::Path;

use super::Finding;

/// Written in two halves so that this file passes its own check.
const MACHINE_ROOTS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/fa", "rm/")];

/// Finds absolute paths that exist on one machine only.
pub(super) fn check(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(root) = MACHINE_ROOTS.iter().find(|root| has_absolute(line, root)) {
            let advice = format!(
                "`{root}` is a path of one machine: make it relative, or use `~` or a variable"
            );
            findings.push(Finding::new(path, index + 1, advice));
        }
    }
    findings
}

/// Whether `root` starts a path here, rather than going on with a longer one.
fn has_absolute(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        let before = line.split_at(at).0.chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || "_-./~}>)*".contains(char))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(line: &str, expected: &[usize]) {
        for root in MACHINE_ROOTS {
            let found = check(Path::new("a.md"), &line.replace('@', root));
            assert_eq!(
                found.iter().map(|one| one.line).collect::<Vec<_>>(),
                expected,
                "{root} in {line}"
            );
        }
    }

    #[test]
    fn absolute_paths_are_found() {
        check_line("@x", &[1]);
        check_line("fine\nsee `@x`", &[2]);
        check_line("PREFIX=@bin", &[1]);
    }

    #[test]
    fn longer_paths_pass() {
        check_line("target@x", &[]);
        check_line("~@x ${HOME}@x ..@x", &[]);
    }
}
