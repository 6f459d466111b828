//! Where everything lives on this machine.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use gswarm_types::NodeName;

use crate::config::Environment;

const SYSTEM_STATE: &str = "/var/lib/gswarm";

/// The user's gswarm directory: `GSWARM_HOME`, else `~/.gswarm`.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    root: PathBuf,
    /// `GSWARM_HOME` was said: nothing is put anywhere else.
    chosen: bool,
}

/// Where an agent keeps its identity and its unsent records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateDir {
    pub(crate) path: PathBuf,
    /// Why it is not where one would look first.
    pub(crate) note: Option<String>,
}

impl Home {
    pub(crate) fn find(environment: &Environment) -> Self {
        if let Some(root) = environment.path("GSWARM_HOME") {
            return Self { root, chosen: true };
        }
        let root = match environment.path("HOME") {
            Some(home) => home.join(".gswarm"),
            None => local_root(),
        };
        Self { root, chosen: false }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// A host's recording; simulated data has a directory of its own.
    pub(crate) fn data_dir(&self, simulated: bool) -> PathBuf {
        self.root.join(if simulated { "data-sim" } else { "data" })
    }

    /// The state directory of the agent of this name.
    pub(crate) fn agent_state(&self, node: &NodeName, simulated: bool) -> StateDir {
        let folder = state_folder(simulated);
        if let Some(system) = self.system_state() {
            return StateDir { path: system.join(folder).join(node.as_str()), note: None };
        }
        let below = Path::new(folder).join(machine_id()).join(node.as_str());
        let usual = self.root.join(&below);
        let Some(kind) = network_file_system(&usual).filter(|_| !self.chosen) else {
            return StateDir { path: usual, note: None };
        };
        match own_local_root() {
            Ok(local) => {
                let note = format!(
                    "`{}` is on a network file system ({kind}): the agent keeps its state in `{}`",
                    self.root.display(),
                    local.display()
                );
                StateDir { path: local.join(below), note: Some(note) }
            },
            Err(error) => {
                let note = format!(
                    "`{}` is on a network file system ({kind}) and no local directory can be used \
                     ({error}): pass --state-dir with one on a local disk",
                    self.root.display()
                );
                StateDir { path: usual, note: Some(note) }
            },
        }
    }

    /// Every directory that holds one state directory per agent of this machine.
    pub(crate) fn agent_folders(&self) -> Vec<PathBuf> {
        let roots = [Some(self.root.clone()), (!self.chosen).then(local_root)];
        let system = (!self.chosen).then(|| PathBuf::from(SYSTEM_STATE));
        let mut folders = Vec::new();
        for folder in [state_folder(false), state_folder(true)] {
            folders.extend(system.iter().map(|root| root.join(folder)));
            folders.extend(roots.iter().flatten().map(|root| root.join(folder).join(machine_id())));
        }
        for simulated in [false, true] {
            folders.push(self.data_dir(simulated).join("agents"));
        }
        folders
    }

    /// `/var/lib/gswarm`, for root.
    fn system_state(&self) -> Option<PathBuf> {
        let is_root = rustix::process::geteuid().is_root();
        let usable = is_root && !self.chosen && fs::create_dir_all(SYSTEM_STATE).is_ok();
        usable.then(|| PathBuf::from(SYSTEM_STATE))
    }
}

/// Makes the directory, for its owner only; one that is there stays as it is.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

const fn state_folder(simulated: bool) -> &'static str {
    if simulated { "state-sim" } else { "state" }
}

fn local_root() -> PathBuf {
    PathBuf::from(format!("/var/tmp/gswarm-{}", rustix::process::geteuid().as_raw()))
}

/// The local root, made if need be, and certainly ours: anyone may write to `/var/tmp`.
fn own_local_root() -> io::Result<PathBuf> {
    let root = local_root();
    match fs::DirBuilder::new().mode(0o700).create(&root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {},
    }
    let metadata = fs::symlink_metadata(&root)?;
    if metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() {
        Ok(root)
    } else {
        let message = format!("`{}` belongs to somebody else", root.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

/// What tells this boot of the machine from others; empty where the kernel does not say.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// What tells this machine from its copies; the hostname where there is no machine id.
pub(crate) fn machine_id() -> String {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit()))
        .unwrap_or_else(|| NodeName::from_hostname(&hostname()).to_string())
}

pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The path itself or the nearest directory above it that exists.
pub(crate) fn nearest_existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|ancestor| ancestor.try_exists().unwrap_or(false))
        .unwrap_or_else(|| Path::new("/"))
}

/// The kind of network file system the path is on; `None` on a local one.
pub(crate) fn network_file_system(path: &Path) -> Option<&'static str> {
    let absolute = std::path::absolute(path).ok()?;
    let status = rustix::fs::statfs(nearest_existing(&absolute)).ok()?;
    file_system_name(status.f_type)
}

/// Magic numbers of `statfs(2)` for file systems that live on other machines or in user space.
const fn file_system_name(magic: i64) -> Option<&'static str> {
    // The kernel's numbers are 32 bits wide; some arrive with their sign extended.
    match magic & 0xffff_ffff {
        0x6969 => Some("nfs"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("cifs"),
        0x0bd0_0bd0 => Some("lustre"),
        0x6573_5546 => Some("fuse"),
        0x4750_4653 => Some("gpfs"),
        0x00c3_6400 => Some("ceph"),
        0x5346_414f => Some("afs"),
        0x0102_1997 => Some("9p"),
        0x1983_0326 => Some("beegfs"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_below_the_chosen_home() {
        let home = Home::find(&Environment::from([("GSWARM_HOME", "/h"), ("HOME", "/u")]));
        let node = NodeName::new("n1").unwrap();
        assert_eq!(home.logs(), Path::new("/h/logs"));
        assert_eq!(home.data_dir(false), Path::new("/h/data"));
        assert_eq!(home.data_dir(true), Path::new("/h/data-sim"));
        let state = home.agent_state(&node, false);
        assert_eq!(state.path, Path::new("/h/state").join(machine_id()).join("n1"));
        assert_eq!(state.note, None);
        assert!(home.agent_folders().iter().all(|folder| folder.starts_with("/h")));
        assert!(home.agent_folders().iter().any(|folder| state.path.starts_with(folder)));
    }

    #[test]
    fn the_usual_home_is_hidden() {
        let home = Home::find(&Environment::from([("HOME", "/u")]));
        assert_eq!(home.root(), Path::new("/u/.gswarm"));
    }

    #[test]
    fn network_file_systems_are_known() {
        assert_eq!(file_system_name(0x6969), Some("nfs"));
        assert_eq!(file_system_name(-11_317_950), Some("cifs"));
        assert_eq!(file_system_name(0xef53), None);
        assert_eq!(network_file_system(Path::new("/proc/self/nothing/here")), None);
    }
}
