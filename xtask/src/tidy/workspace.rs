//! What the checks look at: the files of the repository and the crates with their edges.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The repository as it lies on disk.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) root: PathBuf,
    /// Relative to the root, sorted; tracked files and new ones that git does not ignore.
    pub(super) files: Vec<PathBuf>,
    pub(super) crates: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) description: String,
    /// Relative to the root.
    pub(super) manifest: PathBuf,
    /// The manifest's text, to find the line of an edge.
    pub(super) manifest_text: String,
    pub(super) edges: Vec<Edge>,
}

/// A dependency on another crate of the workspace.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) to: String,
    /// A dev-dependency: only tests use it.
    pub(super) tests_only: bool,
}

impl Workspace {
    pub(super) fn read() -> anyhow::Result<Self> {
        let metadata = output("cargo", &["metadata", "--no-deps", "--format-version", "1"], None)?;
        let metadata: Value = serde_json::from_str(&metadata)
            .context("cannot read the output of `cargo metadata`")?;
        let root = PathBuf::from(text(&metadata["workspace_root"])?);
        let names: Vec<&str> = list(&metadata["packages"])?
            .iter()
            .filter_map(|package| package["name"].as_str())
            .collect();
        let crates = list(&metadata["packages"])?
            .iter()
            .map(|package| Package::read(&root, package, &names))
            .collect::<anyhow::Result<_>>()?;
        let listed = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let mut files: Vec<PathBuf> = output("git", &listed, Some(&root))?
            .split_terminator('\0')
            .map(PathBuf::from)
            // Deleted but not yet committed.
            .filter(|path| root.join(path).is_file())
            .collect();
        files.sort();
        Ok(Self { root, files, crates })
    }

    /// Whether the repository has this file or directory.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file.starts_with(path))
    }
}

impl Package {
    fn read(root: &Path, package: &Value, workspace_names: &[&str]) -> anyhow::Result<Self> {
        let name = text(&package["name"])?;
        let manifest = PathBuf::from(text(&package["manifest_path"])?);
        let manifest_text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("cannot read `{}`", manifest.display()))?;
        let mut edges = Vec::new();
        for dependency in list(&package["dependencies"])? {
            let to = text(&dependency["name"])?;
            if workspace_names.contains(&to.as_str()) {
                edges.push(Edge { to, tests_only: dependency["kind"] == "dev" });
            }
        }
        let description = package["description"].as_str().unwrap_or_default().to_owned();
        let manifest = manifest.strip_prefix(root).unwrap_or(&manifest).to_path_buf();
        Ok(Self { name, description, manifest, manifest_text, edges })
    }
}

fn output(program: &str, args: &[&str], directory: Option<&Path>) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    let output = command.output().with_context(|| format!("cannot run `{program}`"))?;
    if !output.status.success() {
        bail!(
            "`{program} {}` failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{program}` printed no UTF-8"))
}

fn text(value: &Value) -> anyhow::Result<String> {
    Ok(value.as_str().context("`cargo metadata` lacks a text field")?.to_owned())
}

fn list(value: &Value) -> anyhow::Result<&Vec<Value>> {
    value.as_array().context("`cargo metadata` lacks a list field")
}
