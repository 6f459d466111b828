//! How a Rust file is shaped, what pure crates leave alone, and where unsafe code lives.

use std::path::Path;

use super::code::{code_only, is_word, without_tests};
use super::{Finding, Rule, UNSAFE_CRATE};

/// Lines of a file before its tests.
const LINES_MAX: usize = 500;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["mod.rs", "util.rs", "utils.rs", "common.rs", "helpers.rs"];

/// What a pure crate never touches, as a path from its root.
const IMPURE: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::net",
    "std::fs",
    "std::thread",
    "rand",
    "tokio",
    "Uuid::now_v7",
];

/// Checks one Rust file; `path` is relative to the root.
pub(super) fn check(path: &Path, text: &str, layers: &[&[Rule]]) -> Vec<Finding> {
    let mut findings = shape(path, text);
    let code = code_only(text);
    if crate_of(path) != UNSAFE_CRATE {
        findings.extend(words(&code, "unsafe").map(|line| {
            let advice =
                format!("unsafe code: only `{UNSAFE_CRATE}` may contain it; wrap the call there");
            Finding::new(path, line, advice)
        }));
    }
    let is_pure = layers
        .iter()
        .flat_map(|layer| layer.iter())
        .any(|rule| rule.pure && rule.name == crate_of(path));
    if is_pure && !is_test_file(path) {
        findings.extend(impure(path, &without_tests(&code)));
    }
    findings
}

fn shape(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !text.starts_with("//! ") {
        findings.push(Finding::new(
            path,
            1,
            "begin the file with `//! ` and one sentence on what it holds",
        ));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if EMPTY_NAMES.contains(&name) {
        let advice = format!("`{name}` says nothing: name the file after the one noun it holds");
        findings.push(Finding::new(path, 1, advice));
    }
    let lines = lines_before_tests(text);
    if lines > LINES_MAX && !is_test_file(path) {
        let advice =
            format!("{lines} lines before the tests, {LINES_MAX} at most: split by meaning");
        findings.push(Finding::new(path, LINES_MAX + 1, advice));
    }
    findings
}

/// Lines up to the test module; a single gated item further up does not end the count.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let opens = |(gate, next): (&&str, &&str)| {
        *gate == "#[cfg(test)]" && (next.starts_with("mod ") || next.starts_with("#["))
    };
    lines.iter().zip(lines.iter().skip(1)).position(opens).unwrap_or(lines.len())
}

fn impure(path: &Path, code: &str) -> Vec<Finding> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for (line, used) in imports(code) {
        let is_under = |root: &&&str| {
            used.strip_prefix(**root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        found.extend(IMPURE.iter().filter(is_under).map(|root| (line, *root)));
    }
    for root in IMPURE {
        if root.contains("::") {
            found.extend(words(code, root).map(|line| (line, *root)));
        } else {
            // `rand` alone may be a variable and `other::rand` a module; at the front of a path it
            // is the crate.
            let crate_path = format!("{root}::");
            let at_front = |at: &usize| !code.split_at(*at).0.ends_with("::");
            let lines = positions(code, &crate_path).filter(at_front).map(|at| line_at(code, at));
            found.extend(lines.map(|line| (line, *root)));
        }
    }
    found.sort_unstable();
    found.dedup();
    let advise = |(line, root)| {
        let advice =
            format!("`{root}` in a pure crate: take the value as an argument, return the decision");
        Finding::new(path, line, advice)
    };
    found.into_iter().map(advise).collect()
}

/// Every path a `use` brings in, groups expanded, with the line of its statement.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for start in positions(code, "use") {
        let line = line_at(code, start);
        let tree = code.split_at(start).1.split(';').next().unwrap_or_default();
        let tree: String = tree.chars().skip("use".len()).collect();
        expand("", tree.trim(), &mut |path| paths.push((line, path)));
    }
    paths
}

/// Expands `a::{b, c::{d}}` into `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, add: &mut impl FnMut(String)) {
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let path: String = path.chars().filter(|char| !char.is_whitespace()).collect();
        add(format!("{prefix}{path}")
            .trim_start_matches("::")
            .trim_end_matches("::self")
            .to_owned());
        return;
    };
    let head: String = head.chars().filter(|char| !char.is_whitespace()).collect();
    let prefix = format!("{prefix}{head}");
    let group = group.rsplit_once('}').map_or(group, |(inside, _)| inside);
    let (mut depth, mut part) = (0_u32, String::new());
    for char in group.chars().chain([',']) {
        match char {
            ',' if depth == 0 => {
                if !part.trim().is_empty() {
                    expand(&prefix, part.trim(), add);
                }
                part.clear();
                continue;
            },
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {},
        }
        part.push(char);
    }
}

/// The lines on which `word` stands by itself.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    positions(code, word).map(|at| line_at(code, at))
}

fn line_at(code: &str, at: usize) -> usize {
    code.split_at(at).0.matches('\n').count() + 1
}

fn positions<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let (before, rest) = code.split_at(at);
        let after = rest.split_at(word.len()).1;
        let continues = word.ends_with(is_word) && after.starts_with(is_word);
        // `r#word` is another identifier.
        !before.ends_with(is_word) && !before.ends_with('#') && !continues
    })
}

/// `crates/NAME/...` or `xtask/...`.
fn crate_of(path: &Path) -> &str {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        first => first.unwrap_or_default(),
    }
}

fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.iter().any(|part| part == "tests" || part == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_file(path: &str, text: &str, expected: &[&str]) {
        let found = check(Path::new(path), text, super::super::LAYERS);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }

    #[track_caller]
    fn check_pure(code: &str, expected: &[&str]) {
        check_file("crates/gswarm-core/src/health.rs", &format!("//! Health.\n{code}\n"), expected);
    }

    #[test]
    fn a_file_begins_with_its_sentence() {
        check_file("crates/gswarm/src/a.rs", "//! A.\n", &[]);
        check_file("crates/gswarm/src/a.rs", "use b;\n", &["a.rs:1: begin the file"]);
        check_file("crates/gswarm/src/a.rs", "", &["a.rs:1: begin the file"]);
    }

    #[test]
    fn a_file_name_says_something() {
        check_file("crates/gswarm/src/util.rs", "//! A.\n", &["`util.rs` says nothing"]);
        check_file("crates/gswarm/src/a/mod.rs", "//! A.\n", &["`mod.rs` says nothing"]);
    }

    #[test]
    fn a_file_is_short_before_its_tests() {
        let long = format!("//! A.\n{}", "\n".repeat(LINES_MAX));
        check_file("crates/gswarm/src/a.rs", &long, &["a.rs:501: 501 lines before the tests"]);
        check_file("crates/gswarm/tests/it.rs", &long, &[]);
        let tested = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(LINES_MAX));
        check_file("crates/gswarm/src/a.rs", &tested, &[]);
    }

    #[test]
    fn unsafe_lives_in_one_crate() {
        let text = "//! A.\n// unsafe\nfn a() { unsafe { b() } }\n";
        check_file("crates/gswarm-node/src/a.rs", text, &["a.rs:3: unsafe code"]);
        check_file("crates/gswarm-driver/src/a.rs", text, &[]);
        check_file("crates/gswarm-node/src/a.rs", "//! A.\n#![deny(unsafe_code)]\n", &[]);
    }

    #[test]
    fn pure_crates_touch_nothing() {
        check_pure("use std::time::Duration;", &[]);
        check_pure(
            "use std::time::{Duration, Instant};",
            &["health.rs:2: `std::time::Instant` in a pure"],
        );
        check_pure("use std::{fmt, fs::File};", &["`std::fs`"]);
        check_pure("use std::{\n  net::{self},\n  fmt,\n};", &["`std::net`"]);
        check_pure("fn f() { std::thread::spawn(g); }", &["`std::thread`"]);
        check_pure("fn f() { tokio::spawn(g); }", &["`tokio`"]);
        check_pure("use rand::Rng;", &["`rand`"]);
        check_pure("let id = uuid::Uuid::now_v7();", &["`Uuid::now_v7`"]);
    }

    #[test]
    fn words_that_only_look_impure_pass() {
        check_pure("// std::fs is not used\nlet rand = 1; let operand = rand;", &[]);
        check_pure("let operand = my::rand::thing();", &[]);
        check_pure("#[cfg(test)]\nmod tests { use std::fs; }", &[]);
        check_file("crates/gswarm-core/tests/it.rs", "//! A.\nuse std::fs;\n", &[]);
        check_file("crates/gswarm-store/src/a.rs", "//! A.\nuse std::fs;\n", &[]);
    }
}
