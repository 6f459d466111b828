//! The rules no compiler knows: who may depend on whom, how a file is shaped, which documents are
//! generated.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

mod workspace;
mod layers;
mod code;
mod source;
mod paths;
mod features;
mod documents;
mod metrics;

use workspace::Workspace;

/// A crate and the workspace crates it may know.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    /// Crates further down that its code may use.
    may_use: &'static [&'static str],
    /// Crates further up that its tests may use.
    tests_may_use: &'static [&'static str],
    /// Knows neither clock, socket, file, thread nor random number.
    pure: bool,
}

const fn krate(name: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule { name, may_use, tests_may_use: &[], pure: false }
}

const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule { name, may_use, tests_may_use: &[], pure: true }
}

/// The layers from top to bottom: a crate uses only crates of lower layers, and only those named.
///
/// A new edge is a design decision and a commit of its own.
#[rustfmt::skip]
const LAYERS: &[&[Rule]] = &[
    &[
        krate("gswarm-fuzz", &[
            "gswarm", "gswarm-host", "gswarm-node", "gswarm-device", "gswarm-store", "gswarm-wire",
            "gswarm-api", "gswarm-tls", "gswarm-types",
        ]),
    ],
    &[
        krate("gswarm", &[
            "gswarm-sim", "gswarm-host", "gswarm-node", "gswarm-device", "gswarm-store", "gswarm-wire",
            "gswarm-api", "gswarm-driver", "gswarm-core", "gswarm-tls", "gswarm-analysis",
            "gswarm-types",
        ]),
        krate("xtask", &["gswarm-types"]),
    ],
    &[
        krate("gswarm-sim", &[
            "gswarm-host", "gswarm-node", "gswarm-device", "gswarm-store", "gswarm-wire", "gswarm-api",
            "gswarm-core", "gswarm-analysis", "gswarm-types",
        ]),
    ],
    &[
        krate("gswarm-host", &[
            "gswarm-store", "gswarm-wire", "gswarm-api", "gswarm-core", "gswarm-tls", "gswarm-analysis",
            "gswarm-types",
        ]),
        krate("gswarm-node", &[
            "gswarm-device", "gswarm-store", "gswarm-wire", "gswarm-core", "gswarm-tls", "gswarm-types",
        ]),
    ],
    &[
        krate("gswarm-device", &["gswarm-driver", "gswarm-types"]),
        krate("gswarm-store", &["gswarm-core", "gswarm-analysis", "gswarm-types"]),
        krate("gswarm-wire", &["gswarm-types"]),
        krate("gswarm-api", &["gswarm-tls", "gswarm-types"]),
    ],
    &[
        krate("gswarm-driver", &[]),
        krate("gswarm-tls", &["gswarm-types"]),
        pure("gswarm-core", &["gswarm-analysis", "gswarm-types"]),
    ],
    &[pure("gswarm-analysis", &["gswarm-types"])],
    &[pure("gswarm-types", &[]), krate("gswarm-trial", &[])],
];

/// The only crate that may contain unsafe code.
const UNSAFE_CRATE: &str = "gswarm-driver";

/// What to do with the generated documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Documents {
    Compare,
    Write,
}

/// One broken rule: where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    path: PathBuf,
    /// Counted from 1.
    line: usize,
    advice: String,
}

impl Finding {
    fn new(path: impl Into<PathBuf>, line: usize, advice: impl Into<String>) -> Self {
        Self { path: path.into(), line, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.advice)
    }
}

/// Checks everything, prints each finding on its own line and fails if there is one.
pub(crate) fn run(documents: Documents) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::read()?;
    let mut findings = documents::check(&workspace, documents)?;
    findings.extend(layers::check(LAYERS, &workspace.crates));
    for path in &workspace.files {
        let full = workspace.root.join(path);
        let bytes =
            std::fs::read(&full).with_context(|| format!("cannot read `{}`", full.display()))?;
        // Pictures, fixtures of binary formats: nothing to read in them.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        findings.extend(paths::check(path, &text));
        if path.extension().is_some_and(|extension| extension == "rs") {
            findings.extend(source::check(path, &text, LAYERS));
        }
        if path.as_os_str() == features::PATH {
            findings.extend(features::check(&text, |proof| workspace.has(proof)));
        }
    }
    for finding in &findings {
        println!("{finding}");
    }
    Ok(match findings.len() {
        0 => {
            println!("tidy: {} files, nothing to do", workspace.files.len());
            ExitCode::SUCCESS
        },
        1 => failed("tidy: 1 thing to do"),
        many => failed(&format!("tidy: {many} things to do")),
    })
}

fn failed(summary: &str) -> ExitCode {
    println!("{summary}");
    ExitCode::FAILURE
}
