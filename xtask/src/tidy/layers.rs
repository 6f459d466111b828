//! The layer table against the real edges, and the picture of it.

use super::workspace::{Edge, Package};
use super::{Finding, Rule};

const TABLE: &str = "xtask/src/tidy.rs";

/// Compares the edges of the workspace with the table.
pub(super) fn check(layers: &[&[Rule]], crates: &[Package]) -> Vec<Finding> {
    let mut findings = table(layers, crates);
    for package in crates {
        let Some((depth, rule)) = find(layers, &package.name) else {
            let advice =
                format!("`{}` is in no layer: give it a row in LAYERS in {TABLE}", package.name);
            findings.push(Finding::new(&package.manifest, 1, advice));
            continue;
        };
        for edge in &package.edges {
            if let Some(advice) = refused(layers, depth, rule, edge) {
                findings.push(Finding::new(&package.manifest, line_of(package, edge), advice));
            }
        }
    }
    findings
}

/// The table itself: every crate exists, every allowed edge points down.
fn table(layers: &[&[Rule]], crates: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (depth, rule) in rules(layers) {
        let mut add = |advice| findings.push(Finding::new(TABLE, 1, advice));
        if !crates.iter().any(|package| package.name == rule.name) {
            add(format!(
                "LAYERS names `{}`, which is no crate of the workspace: remove it",
                rule.name
            ));
        }
        for used in rule.may_use {
            match find(layers, used) {
                Some((below, _)) if below > depth => {},
                Some(_) => add(format!(
                    "LAYERS lets `{}` use `{used}`, which is not in a lower layer: move one of them",
                    rule.name
                )),
                None => add(format!("LAYERS lets `{}` use `{used}`, which has no row", rule.name)),
            }
        }
    }
    findings
}

/// Why the edge is not allowed, `None` if it is.
fn refused(layers: &[&[Rule]], depth: usize, rule: &Rule, edge: &Edge) -> Option<String> {
    let (name, to) = (rule.name, edge.to.as_str());
    let points_down = find(layers, to).is_some_and(|(below, _)| below > depth);
    if edge.tests_only {
        if points_down || rule.tests_may_use.contains(&to) {
            return None;
        }
        return Some(format!(
            "the tests of `{name}` may not use `{to}`: test it from above, or list it in \
             `tests_may_use` in LAYERS in {TABLE}"
        ));
    }
    if points_down && rule.may_use.contains(&to) {
        return None;
    }
    Some(if points_down {
        format!(
            "`{name}` may not use `{to}`: drop the dependency, or add the edge to LAYERS in {TABLE} \
             in a commit of its own"
        )
    } else {
        format!(
            "`{name}` may not use `{to}`: it is not in a lower layer; move the shared part down"
        )
    })
}

/// The picture for ARCHITECTURE.md: the layers, then each crate with its sentence and its edges.
pub(super) fn picture(layers: &[&[Rule]], crates: &[Package]) -> String {
    let mut text = String::from("```text\n");
    for (depth, layer) in layers.iter().enumerate() {
        let names: Vec<&str> = layer.iter().map(|rule| rule.name).collect();
        let row = names.join("   ");
        let arrow = if depth + 1 == layers.len() { "" } else { "    |\n    v\n" };
        text.push_str(&format!("{row}\n{arrow}"));
    }
    text.push_str("```\n\n| crate | one sentence | may use |\n|---|---|---|\n");
    for (_, rule) in rules(layers) {
        let sentence = crates
            .iter()
            .find(|package| package.name == rule.name)
            .map_or("", |package| package.description.as_str());
        let mark = if rule.pure { " *(pure)*" } else { "" };
        let uses = match rule.may_use {
            [] => "nothing of ours".to_owned(),
            uses => uses
                .iter()
                .map(|used| used.trim_start_matches("gswarm-"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        text.push_str(&format!("| `{}`{mark} | {sentence} | {uses} |\n", rule.name));
    }
    text.push_str(
        "\nAn arrow means \"may use what is further down\". A pure crate knows neither clock, socket,\n\
         file, thread nor random number.\n",
    );
    text
}

fn rules<'a>(layers: &'a [&'a [Rule]]) -> impl Iterator<Item = (usize, &'a Rule)> {
    layers.iter().enumerate().flat_map(|(depth, layer)| layer.iter().map(move |rule| (depth, rule)))
}

fn find<'a>(layers: &'a [&'a [Rule]], name: &str) -> Option<(usize, &'a Rule)> {
    rules(layers).find(|(_, rule)| rule.name == name)
}

/// The last line that declares the edge: dev-dependencies stand after dependencies.
fn line_of(package: &Package, edge: &Edge) -> usize {
    let declares = |line: &str| {
        line.trim_start()
            .strip_prefix(edge.to.as_str())
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    let mut lines = package.manifest_text.lines().enumerate().filter(|(_, line)| declares(line));
    let line = if edge.tests_only { lines.last() } else { lines.next() };
    line.map_or(1, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::super::{krate, pure};
    use super::*;

    const TOP: Rule = krate("top", &["middle", "bottom"]);
    const MIDDLE: Rule =
        Rule { name: "middle", may_use: &[], tests_may_use: &["top"], pure: false };
    const BOTTOM: Rule = pure("bottom", &[]);
    const SMALL: &[&[Rule]] = &[&[TOP], &[MIDDLE], &[BOTTOM]];

    /// Crates from `name: edge edge`, where `~edge` is a dev-dependency.
    fn crates(text: &str) -> Vec<Package> {
        text.split(';')
            .map(|one| {
                let (name, edges) = one.split_once(':').unwrap_or((one, ""));
                let edges: Vec<Edge> = edges
                    .split_whitespace()
                    .map(|to| Edge {
                        to: to.trim_start_matches('~').to_owned(),
                        tests_only: to.starts_with('~'),
                    })
                    .collect();
                let declared: String =
                    edges.iter().map(|edge| format!("{}.workspace = true\n", edge.to)).collect();
                Package {
                    name: name.trim().to_owned(),
                    description: format!("The {}", name.trim()),
                    manifest: format!("crates/{}/Cargo.toml", name.trim()).into(),
                    manifest_text: format!("[dependencies]\n{declared}"),
                    edges,
                }
            })
            .collect()
    }

    #[track_caller]
    fn check_edges(text: &str, expected: &[&str]) {
        let found = check(SMALL, &crates(text));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} lacks {expected}");
        }
    }

    #[test]
    fn named_edges_that_point_down_pass() {
        check_edges("top: middle bottom; middle; bottom", &[]);
    }

    #[test]
    fn an_edge_that_is_not_named_fails_at_its_line() {
        check_edges(
            "top: bottom; middle: bottom; bottom",
            &["crates/middle/Cargo.toml:2: `middle` may not use `bottom`: drop"],
        );
    }

    #[test]
    fn an_edge_upward_fails() {
        check_edges(
            "top; middle; bottom: middle",
            &["`bottom` may not use `middle`: it is not in a lower"],
        );
    }

    #[test]
    fn tests_may_look_down_freely_and_up_where_listed() {
        check_edges("top; middle: ~bottom ~top; bottom", &[]);
        check_edges("top; middle; bottom: ~top", &["the tests of `bottom` may not use `top`"]);
    }

    #[test]
    fn table_and_workspace_name_the_same_crates() {
        check_edges("top; middle; bottom; new", &["`new` is in no layer"]);
        check_edges("top; bottom", &["LAYERS names `middle`"]);
    }

    #[test]
    fn the_real_table_points_down() {
        let every: Vec<&str> = rules(super::super::LAYERS).map(|(_, rule)| rule.name).collect();
        assert_eq!(table(super::super::LAYERS, &crates(&every.join(";"))), []);
    }

    #[test]
    fn the_picture_shows_layers_and_sentences() {
        let picture = picture(SMALL, &crates("top; middle; bottom"));
        assert!(picture.starts_with("```text\ntop\n    |\n    v\nmiddle\n"), "{picture}");
        assert!(picture.contains("| `top` | The top | middle, bottom |"), "{picture}");
        assert!(
            picture.contains("| `bottom` *(pure)* | The bottom | nothing of ours |"),
            "{picture}"
        );
    }
}
