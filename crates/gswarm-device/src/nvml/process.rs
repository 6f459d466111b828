//! Processes on one GPU, with the program name, the user and the job from procfs.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gswarm_driver::{Device, NvmlError, ProcessUse};
use gswarm_types::{ProcessKind, ProcessRow};

use super::slurm;

/// How much of an environment is searched; nearly all are a hundred times smaller.
const ENVIRON_BYTES_MAX: u64 = 1024 * 1024;

/// Where names, users and jobs are looked up.
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
            job: None,
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
            row.job = job(&directory);
        }
    }
}

/// The effective user: whose rights the process has.
fn uid(directory: &Path) -> Option<u32> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The cgroup is asked first: a process can write into its environment what it likes.
fn job(directory: &Path) -> Option<String> {
    let cgroup = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
    if let Some(job) = slurm::job_of_cgroup(&cgroup) {
        return Some(job.to_owned());
    }
    // Those of other users are closed to an agent without root.
    let environ = read_start(&directory.join("environ"), ENVIRON_BYTES_MAX).ok()?;
    slurm::job_of_environ(&environ).map(str::to_owned)
}

fn read_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    fn check(pid: u32, name: Option<&str>, user: Option<&str>, job: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        let slurm = "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n";
        let system = "0::/system.slice/ssh.service\n";
        for (pid, comm, uid, cgroup, environ) in [
            (10, "python3", 1000, Some(slurm), Some("SLURM_JOB_ID=99\0")),
            (11, "trainer", 7777, Some(system), Some("HOME=/\0SLURM_JOB_ID=99\0")),
            (13, "bash", 1000, Some(system), None),
            (14, "bash", 1000, None, Some("SLURM_JOB_ID=mine\0")),
        ] {
            let directory = root.path().join(format!("{pid}"));
            fs::create_dir(&directory).unwrap();
            for (file, text) in [("cgroup", cgroup), ("environ", environ)] {
                if let Some(text) = text {
                    fs::write(directory.join(file), text).unwrap();
                }
            }
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
            job: None,
            memory_bytes: None,
            kind: ProcessKind::Compute,
        }];
        procfs.fill(&mut rows);
        let found = [&rows[0].name, &rows[0].user, &rows[0].job].map(Option::as_deref);
        assert_eq!(found, [name, user, job]);
    }

    #[test]
    fn names_users_and_jobs() {
        check(10, Some("python3"), Some("ada"), Some("1234"));
        check(11, Some("trainer"), Some("7777"), Some("99"));
        check(12, None, None, None);
        check(13, Some("bash"), Some("ada"), None);
        check(14, Some("bash"), Some("ada"), None);
    }
}
