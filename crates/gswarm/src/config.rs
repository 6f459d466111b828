//! Flags aside, everything that configures gswarm: environment, files, defaults.
//!
//! The only reader of the environment. Order: flag, environment, file, default.

mod keys;
mod file;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use gswarm_api::{ErrorCode, Target};
use gswarm_types::{Micros, Period};

use crate::fault::Fault;
use crate::units;
use keys::{Key, nearest};

pub(crate) use keys::{KEYS, Kind};

/// Variables that are no configuration keys.
const OTHER_VARIABLES: [&str; 4] = ["GSWARM_HOST", "GSWARM_HOME", "GSWARM_CONFIG", "GSWARM_TOKEN"];
const SYSTEM_FILE: &str = "/etc/gswarm/config.yaml";

/// The environment as it was when the process started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
}

/// Every value in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Setting>,
    /// What is wrong, in reading order.
    pub(crate) problems: Vec<Problem>,
    /// Files that were read.
    pub(crate) files: Vec<PathBuf>,
    /// `GSWARM_HOST`.
    target: Option<String>,
}

/// One value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
}

/// Something in a file or in the environment that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) origin: Origin,
    pub(crate) text: String,
    /// Goes on with a warning; `config check` still fails.
    pub(crate) harmless: bool,
}

// === impl Environment ===

impl Environment {
    pub(crate) fn capture() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { variables }
    }

    /// A variable; set but empty counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Whether output may be coloured, as far as the environment has a say.
    pub(crate) fn permits_colour(&self) -> bool {
        self.get("NO_COLOR").is_none() && self.get("TERM") != Some("dumb")
    }

    /// Whether this process runs in a container.
    pub(crate) fn is_container(&self) -> bool {
        self.get("container").is_some()
            || self.get("KUBERNETES_SERVICE_HOST").is_some()
            || ["/.dockerenv", "/run/.containerenv"]
                .iter()
                .any(|path| Path::new(path).try_exists().unwrap_or(false))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect()
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self { variables: pairs.into_iter().collect() }
    }
}

// === impl Settings ===

impl Settings {
    /// Reads defaults, files and environment. `explicit` is `--config`.
    pub(crate) fn load(
        environment: &Environment,
        home: &Path,
        explicit: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let mut settings = Self::with_defaults();
        match explicit.map(Path::to_path_buf).or_else(|| environment.path("GSWARM_CONFIG")) {
            Some(path) => {
                settings.read_file(&path)?.then_some(()).ok_or_else(|| {
                    Fault::not_found(format!("there is no configuration file `{}`", path.display()))
                        .hint("check --config and GSWARM_CONFIG")
                })?;
            },
            None => settings.read_usual_files(environment, home)?,
        }
        settings.read_environment(environment);
        Ok(settings)
    }

    pub(crate) fn with_defaults() -> Self {
        let values = KEYS
            .iter()
            .filter_map(|key| {
                let text = key.default?.to_owned();
                Some((key.path, Setting { text, origin: Origin::Default }))
            })
            .collect();
        Self { values, ..Self::default() }
    }

    fn read_usual_files(&mut self, environment: &Environment, home: &Path) -> anyhow::Result<()> {
        self.read_file(Path::new(SYSTEM_FILE))?;
        // The old file belongs to the real home; a home of its own has none.
        if let (None, Some(user)) = (environment.path("GSWARM_HOME"), environment.path("HOME")) {
            self.read_old_file(&user.join(".gswarm.conf"))?;
        }
        self.read_file(&home.join("config.yaml"))?;
        Ok(())
    }

    /// False when there is no such file.
    fn read_file(&mut self, path: &Path) -> anyhow::Result<bool> {
        let Some(entries) = file::read(path)? else { return Ok(false) };
        self.files.push(path.to_path_buf());
        for (name, text) in entries {
            self.set(&name, text, &Origin::File(path.to_path_buf()));
        }
        Ok(true)
    }

    fn read_old_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let Some(entries) = file::read(path)? else { return Ok(()) };
        self.files.push(path.to_path_buf());
        let origin = Origin::File(path.to_path_buf());
        self.problems.push(Problem {
            origin: origin.clone(),
            text: "is the old tool's file; move what you need to ~/.gswarm/config.yaml".to_owned(),
            harmless: true,
        });
        for (old, text) in entries {
            match file::new_name(&old) {
                Some(name) => self.set(name, text, &origin),
                None => self.problems.push(Problem {
                    origin: origin.clone(),
                    text: format!("`{old}` has no meaning any more and is not used"),
                    harmless: true,
                }),
            }
        }
        Ok(())
    }

    fn read_environment(&mut self, environment: &Environment) {
        self.target = environment.get("GSWARM_HOST").map(str::to_owned);
        for (name, value) in &environment.variables {
            let is_ours = name.starts_with("GSWARM_") && !OTHER_VARIABLES.contains(&name.as_str());
            if is_ours && !value.is_empty() {
                let path =
                    name.trim_start_matches("GSWARM_").replace("__", ".").to_ascii_lowercase();
                self.set(&path, value.clone(), &Origin::Variable(name.clone()));
            }
        }
    }

    fn set(&mut self, path: &str, text: String, origin: &Origin) {
        let (text, harmless) = match Key::find(path) {
            Some(key) => match key.kind.check(&text) {
                Ok(()) => {
                    self.values.insert(key.path, Setting { text, origin: origin.clone() });
                    return;
                },
                Err(why) => (format!("`{path}`: {why}"), false),
            },
            None => {
                let near = nearest(path).map(|near| format!("; did you mean `{near}`?"));
                (format!("unknown key `{path}`{}", near.unwrap_or_default()), true)
            },
        };
        self.problems.push(Problem { origin: origin.clone(), text, harmless });
    }

    /// An error for the first value that cannot be used.
    pub(crate) fn refuse_wrong_values(&self) -> Result<(), Fault> {
        match self.problems.iter().find(|problem| !problem.harmless) {
            None => Ok(()),
            Some(problem) => Err(Fault::invalid(problem.to_string())
                .hint("`gswarm config check` lists everything that is wrong")),
        }
    }

    pub(crate) fn setting(&self, path: &str) -> Option<&Setting> {
        debug_assert!(Key::find(path).is_some(), "{path} is no key");
        self.values.get(path)
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.setting(path).map(|setting| setting.text.as_str())
    }

    /// A value by its type; values were checked when they were read.
    pub(crate) fn get<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The values of a list.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let text = self.text(path).unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    pub(crate) fn switch(&self, path: &str) -> bool {
        self.get(path).unwrap_or(false)
    }

    pub(crate) fn path(&self, path: &str) -> Option<PathBuf> {
        self.text(path).map(PathBuf::from)
    }

    pub(crate) fn period(&self, path: &str) -> Option<Period> {
        units::parse_period(self.text(path)?).ok()
    }

    pub(crate) fn bytes(&self, path: &str) -> Option<u64> {
        units::parse_bytes(self.text(path)?).ok()
    }

    pub(crate) fn span(&self, path: &str) -> Option<Micros> {
        gswarm_api::timestamp::parse_span(self.text(path)?).ok()
    }

    /// The main port of a host on this machine.
    pub(crate) fn main_port(&self) -> u16 {
        let own = self.setting("host.port").filter(|setting| setting.origin != Origin::Default);
        let port =
            own.or_else(|| self.setting("cluster.port")).map(|setting| setting.text.as_str());
        port.and_then(|text| text.parse().ok()).unwrap_or(gswarm_api::DEFAULT_PORT)
    }

    /// The host to talk to: flag, `GSWARM_HOST`, `cluster.host`, this machine.
    pub(crate) fn target(&self, flag: Option<&str>) -> anyhow::Result<Target> {
        if let Some(text) = flag.or(self.target.as_deref()) {
            return Ok(text.parse::<Target>()?);
        }
        let Some(host) = self.text("cluster.host") else {
            return Ok(Target::new(Target::local().host(), self.main_port()));
        };
        let target: Target = host.parse().with_context(|| {
            Fault::new(ErrorCode::InvalidArgument, "`cluster.host` cannot be used")
        })?;
        let says_port = target.port() != gswarm_api::DEFAULT_PORT;
        match self.get("cluster.port") {
            Some(port) if !says_port => Ok(Target::new(target.host(), port)),
            _ => Ok(target),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Variable(name) => write!(f, "environment variable {name}: {}", self.text),
            Origin::File(_) | Origin::Default => write!(f, "{}: {}", self.origin, self.text),
        }
    }
}

#[cfg(test)]
mod tests;
