//! Where the library may be.

use std::fs;
use std::path::{Path, PathBuf};

/// The name that every driver installs. The bare `.so` belongs to development packages and may be
/// a stub that links but cannot work, so it is never tried.
const SONAME: &str = "libnvidia-ml.so.1";

/// Directories of distributions, containers, WSL and NixOS that `ld.so` may not know.
const DIRECTORIES: [&str; 8] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Where to look for the library.
#[derive(Debug, Clone)]
pub struct NvmlSearch {
    /// Only this file, when given.
    pub library: Option<PathBuf>,
    /// Tried in order after the dynamic linker's own search.
    pub directories: Vec<PathBuf>,
}

impl Default for NvmlSearch {
    fn default() -> Self {
        Self { library: None, directories: DIRECTORIES.iter().map(PathBuf::from).collect() }
    }
}

impl NvmlSearch {
    /// Only this file, or the usual places when there is none.
    pub fn for_library(library: Option<&Path>) -> Self {
        Self { library: library.map(Path::to_owned), ..Self::default() }
    }

    /// What to hand to dlopen, in order.
    pub(crate) fn candidates(&self) -> Vec<PathBuf> {
        match &self.library {
            Some(library) => vec![library.clone()],
            None => std::iter::once(PathBuf::from(SONAME))
                .chain(self.directories.iter().map(|directory| directory.join(SONAME)))
                .collect(),
        }
    }
}

/// The file behind a candidate that was loaded by name: the dynamic linker does not say, the
/// process's own map does. `None` where that map cannot be read.
pub(crate) fn loaded_file() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    file_in_maps(&maps)
}

fn file_in_maps(maps: &str) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let path = Path::new(line.get(line.find('/')?..)?);
        let name = path.file_name()?.to_str()?;
        name.starts_with("libnvidia-ml.so").then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_library_is_the_only_candidate() {
        let search = NvmlSearch::for_library(Some(Path::new("/opt/libnvidia-ml.so.1")));
        assert_eq!(search.candidates(), [PathBuf::from("/opt/libnvidia-ml.so.1")]);
    }

    #[test]
    fn the_linker_comes_first_and_the_bare_name_never() {
        let candidates = NvmlSearch::default().candidates();
        assert_eq!(candidates[0], PathBuf::from("libnvidia-ml.so.1"));
        assert!(candidates.iter().all(|c| c.to_string_lossy().ends_with(".so.1")));
    }

    #[test]
    fn the_loaded_file_is_read_from_the_map() {
        let maps = "7f00-7f01 r-xp 0 08:01 12    /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 0 08:01 13    /usr/lib64/libnvidia-ml.so.580.95.05\n\
                    7f04-7f05 rw-p 0 00:00 0 \n";
        assert_eq!(file_in_maps(maps), Some(PathBuf::from("/usr/lib64/libnvidia-ml.so.580.95.05")));
        assert_eq!(file_in_maps("7f04-7f05 rw-p 0 00:00 0 \n"), None);
    }
}
