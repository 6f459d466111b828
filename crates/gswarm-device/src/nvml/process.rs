//! Processes on one GPU, with the program name and the user from procfs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use gswarm_driver::{Device, NvmlError, ProcessUse};
use gswarm_types::{ProcessKind, ProcessRow};

/// Where names and users are looked up.
#[derive(Debug, Clone)]
pub(super) struct Procfs {
    pub(super) proc: PathBuf,
    pub(super) passwd: PathBuf,
}

impl Default for Procfs {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), passwd: PathBuf::from("/etc/passwd") }
    }
}

/// The processes of one GPU; one that both computes and draws is listed once, as computing.
pub(super) fn read(device: &Device, procfs: &Procfs) -> Result<Vec<ProcessRow>, NvmlError> {
    let compute = device.processes(ProcessUse::Compute)?;
    // Data centre drivers may have no such list, which says nothing about the other.
    let graphics = device.processes(ProcessUse::Graphics).unwrap_or_default();
    let compute = compute.into_iter().map(|process| (process, ProcessKind::Compute));
    let graphics = graphics.into_iter().map(|process| (process, ProcessKind::Graphics));
    let mut seen = HashSet::new();
    let mut rows: Vec<ProcessRow> = compute
        .chain(graphics)
        .filter(|(process, _)| seen.insert(process.pid))
        .map(|(process, kind)| ProcessRow {
            device: device.index(),
            pid: process.pid,
            name: None,
            user: None,
            memory_bytes: process.memory_bytes,
            kind,
        })
        .collect();
    procfs.fill(&mut rows);
    Ok(rows)
}

impl Procfs {
    fn fill(&self, rows: &mut [ProcessRow]) {
        if rows.is_empty() {
            return;
        }
        let users = users(&self.passwd);
        for row in rows {
            let directory = self.proc.join(row.pid.to_string());
            row.name = fs::read_to_string(directory.join("comm"))
                .ok()
                .map(|name| name.trim_end().to_owned());
            row.user = uid(&directory)
                .map(|uid| users.get(&uid).cloned().unwrap_or_else(|| uid.to_string()));
        }
    }
}

/// The effective user: whose rights the process has.
fn uid(directory: &Path) -> Option<u32> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Local users by number. Those of a directory service are not asked for: that can block for
/// seconds; they are shown by number.
fn users(passwd: &Path) -> HashMap<u32, String> {
    let text = fs::read_to_string(passwd).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.split(':');
            let name = parts.next()?;
            Some((parts.nth(1)?.parse().ok()?, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pid: u32, name: Option<&str>, user: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        for (pid, comm, uid) in [(10, "python3", 1000), (11, "trainer", 7777)] {
            let directory = root.path().join(format!("{pid}"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
            let status = format!("Name:\t{comm}\nUid:\t0\t{uid}\t0\t0\n");
            fs::write(directory.join("status"), status).unwrap();
        }
        let passwd = root.path().join("passwd");
        fs::write(&passwd, "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")
            .unwrap();
        let procfs = Procfs { proc: root.path().to_owned(), passwd };
        let mut rows = [ProcessRow {
            device: 0,
            pid,
            name: None,
            user: None,
            memory_bytes: None,
            kind: ProcessKind::Compute,
        }];
        procfs.fill(&mut rows);
        assert_eq!((rows[0].name.as_deref(), rows[0].user.as_deref()), (name, user));
    }

    #[test]
    fn names_and_users() {
        check(10, Some("python3"), Some("ada"));
        check(11, Some("trainer"), Some("7777"));
        check(12, None, None);
    }
}
