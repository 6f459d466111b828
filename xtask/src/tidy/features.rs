//! The list of features: nothing is done without a proof that exists.

use std::path::Path;

use super::Finding;

pub(super) const PATH: &str = "docs/features.md";

/// A backticked proof under one of these is a file of the repository.
const OUR_ROOTS: &[&str] = &["crates/", "docs/", "scripts/", "tests/", "xtask/"];

/// Checks the tables with the columns `id`, `state` and `proof`.
pub(super) fn check(text: &str, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut columns = None;
    let mut rows = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let cells = cells(line);
        if cells.is_empty() {
            columns = None;
            continue;
        }
        let Some(columns) = columns else {
            columns = Columns::of(&cells);
            continue;
        };
        if let Some(row) = columns.row(&cells) {
            rows += 1;
            let broken = broken(row, &exists);
            findings.extend(broken.map(|advice| Finding::new(PATH, index + 1, advice)));
        }
    }
    if rows == 0 {
        findings.push(Finding::new(PATH, 1, "no table with the columns `id`, `state` and `proof`"));
    }
    findings
}

/// Where the three columns stand.
#[derive(Debug, Clone, Copy)]
struct Columns {
    id: usize,
    state: usize,
    proof: usize,
}

#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    id: &'a str,
    state: &'a str,
    proof: &'a str,
}

impl Columns {
    fn of(header: &[&str]) -> Option<Self> {
        let column = |name: &str| header.iter().position(|cell| cell.eq_ignore_ascii_case(name));
        Some(Self { id: column("id")?, state: column("state")?, proof: column("proof")? })
    }

    /// `None` for the line below the header and for rows without an id such as `A1`.
    fn row<'a>(self, cells: &[&'a str]) -> Option<Row<'a>> {
        let id = *cells.get(self.id)?;
        let is_id = id.starts_with(|c: char| c.is_ascii_uppercase())
            && id.contains(|c: char| c.is_ascii_digit());
        is_id.then(|| Row {
            id,
            state: cells.get(self.state).unwrap_or(&""),
            proof: cells.get(self.proof).unwrap_or(&""),
        })
    }
}

fn broken(row: Row<'_>, exists: impl Fn(&Path) -> bool) -> Option<String> {
    if row.state != "done" {
        return None;
    }
    let proofs: Vec<&str> =
        row.proof.split('`').skip(1).step_by(2).filter(|one| !one.is_empty()).collect();
    if proofs.is_empty() {
        return Some(format!("{} is done without a proof: name its test in backticks", row.id));
    }
    let missing = proofs.iter().find(|proof| {
        let file = proof.split("::").next().unwrap_or_default();
        let is_ours = OUR_ROOTS.iter().any(|root| file.starts_with(root));
        is_ours && !file.contains([' ', '*', '{']) && !exists(Path::new(file))
    })?;
    Some(format!(
        "{}: its proof `{missing}` is not in the repository: name the one that is",
        row.id
    ))
}

/// The cells of a table line; none where it is not one.
fn cells(line: &str) -> Vec<&str> {
    let Some(inside) = line.trim().strip_prefix('|') else {
        return Vec::new();
    };
    inside.trim_end_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_rows(rows: &str, expected: &[&str]) {
        let text = format!("# Features\n\n| id | state | proof |\n|---|---|---|\n{rows}\n");
        let found = check(&text, |path| path == Path::new("crates/a/tests/it.rs"));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }

    #[test]
    fn done_needs_a_proof() {
        check_rows("| A1 | done | `crates/a/tests/it.rs::kill` |", &[]);
        check_rows("| A1 | done | `make bench` |", &[]);
        check_rows("| A1 | done | by hand |", &["docs/features.md:5: A1 is done without a proof"]);
        check_rows("| A1 | done |", &["A1 is done without a proof"]);
        check_rows("| A1 | open | |\n| A2 | part | `x` |", &[]);
    }

    #[test]
    fn the_proof_exists() {
        check_rows("| A1 | done | `crates/b/tests/it.rs` |", &["is not in the repository"]);
    }

    #[test]
    fn a_list_without_rows_fails() {
        check_rows("", &["no table"]);
    }
}
