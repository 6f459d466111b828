//! The Slurm job of a process, out of what procfs says about it.

use std::str;

/// Slurm counts jobs in 32 bits.
const ID_DIGITS_MAX: usize = 10;
const VARIABLE: &[u8] = b"SLURM_JOB_ID=";

/// The job whose cgroup the process is in, from the text of `/proc/PID/cgroup`: Slurm itself put
/// it there, and without root it cannot leave.
pub(super) fn job_of_cgroup(text: &str) -> Option<&str> {
    // `4:memory:/path`, one line for each hierarchy; a path may hold colons too.
    text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(job_of_path)
}

/// The outermost job wins: below its own cgroup a process may make others with any name.
fn job_of_path(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').collect();
    let outermost = parts.iter().enumerate().find_map(|(at, part)| {
        let id = part.strip_prefix("job_")?;
        let is_slurms = match parts.get(..at)? {
            [.., scope] if is_step_daemon(scope) => true,
            [.., root, user] => is_root(root) && user.strip_prefix("uid_").is_some_and(is_number),
            _ => false,
        };
        is_slurms.then_some(id)
    });
    outermost.filter(|id| is_id(id))
}

/// Version 2; with several daemons on one machine, each has the name of its node in front.
fn is_step_daemon(part: &str) -> bool {
    part == "slurmstepd.scope" || part.ends_with("_slurmstepd.scope")
}

/// Version 1; with several daemons on one machine, each has the name of its node behind.
fn is_root(part: &str) -> bool {
    part == "slurm" || part.starts_with("slurm_")
}

/// The job that the process was started with, from the bytes of `/proc/PID/environ`: a claim, for
/// clusters where Slurm makes no cgroups.
pub(super) fn job_of_environ(bytes: &[u8]) -> Option<&str> {
    // Without the zero at its end a variable may be cut, and half an id is another job's id.
    let mut whole =
        bytes.split_inclusive(|byte| *byte == 0).filter_map(|part| part.strip_suffix(b"\0"));
    let value = whole.find_map(|variable| variable.strip_prefix(VARIABLE))?;
    str::from_utf8(value).ok().filter(|id| is_id(id))
}

fn is_id(text: &str) -> bool {
    text.len() <= ID_DIGITS_MAX && is_number(text)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_cgroup(text: &str, expected: Option<&str>) {
        assert_eq!(job_of_cgroup(text), expected, "{text}");
    }

    #[track_caller]
    fn check_environ(bytes: &[u8], expected: Option<&str>) {
        assert_eq!(job_of_environ(bytes), expected, "{}", bytes.escape_ascii());
    }

    #[test]
    fn cgroups_of_version_1() {
        check_cgroup("4:memory:/slurm/uid_1000/job_1234/step_0/task_0\n", Some("1234"));
        check_cgroup("4:memory:/slurm/uid_1000/job_1234", Some("1234"));
        check_cgroup("3:cpuset:/slurm_gpu-01/uid_0/job_7/step_batch\n", Some("7"));
        let first_says_nothing = "5:devices:/system.slice/slurmd.service\n\
             4:cpu,cpuacct:/\n\
             3:memory:/slurm/uid_1000/job_4294967295/step_extern/task_0\n\
             0::/system.slice/slurmd.service\n";
        check_cgroup(first_says_nothing, Some("4294967295"));
    }

    #[test]
    fn cgroups_of_version_2() {
        let path = "0::/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0\n";
        check_cgroup(path, Some("1234"));
        let path = "0::/system.slice/gpu-01_slurmstepd.scope/job_1234/step_0/user/task_3\n";
        check_cgroup(path, Some("1234"));
        // As seen from another cgroup namespace.
        check_cgroup("0::/../../slurmstepd.scope/job_12/step_0\n", Some("12"));
        // A job's own cgroups below cannot pretend to be another job.
        let path = "0::/system.slice/slurmstepd.scope/job_1/step_0/user/slurmstepd.scope/job_2\n";
        check_cgroup(path, Some("1"));
        let path = "0::/system.slice/slurmstepd.scope/job_x/step_0/user/slurmstepd.scope/job_2\n";
        check_cgroup(path, None);
    }

    #[test]
    fn cgroups_of_others() {
        check_cgroup("", None);
        check_cgroup("nonsense", None);
        check_cgroup("0::/\n", None);
        check_cgroup("0::/user.slice/user-1000.slice/session-2.scope\n", None);
        check_cgroup("0::/job_1234\n", None);
        check_cgroup("0::/user.slice/job_1234/step_0\n", None);
        check_cgroup("4:memory:/slurm/job_1234\n", None);
        check_cgroup("4:memory:/slurm/uid_x/job_1234\n", None);
        check_cgroup("4:memory:/htcondor/uid_1000/job_1234\n", None);
        check_cgroup("0::/system.slice/slurmstepd.scope/system\n", None);
        check_cgroup("0::/system.slice/slurmstepd.scope/job_/step_0\n", None);
        check_cgroup("0::/system.slice/slurmstepd.scope/job_12x/step_0\n", None);
        check_cgroup("0::/system.slice/slurmstepd.scope/job_12345678901/step_0\n", None);
    }

    #[test]
    fn environments() {
        check_environ(b"HOME=/root\0SLURM_JOB_ID=1234\0PATH=/bin\0", Some("1234"));
        check_environ(b"SLURM_JOB_ID=4294967295\0", Some("4294967295"));
        check_environ(b"", None);
        check_environ(b"HOME=/root\0", None);
        check_environ(b"SLURM_JOB_ID=\0", None);
        check_environ(b"SLURM_JOB_ID=12 34\0", None);
        check_environ(b"SLURM_JOB_ID=-1\0", None);
        check_environ(b"SLURM_JOB_ID=12345678901\0", None);
        check_environ(b"SLURM_JOB_ID=\xff\0", None);
        check_environ(b"MY_SLURM_JOB_ID=1234\0", None);
        check_environ(b"NOTE=SLURM_JOB_ID=1234\0", None);
        check_environ(b"SLURM_JOB_IDS=1234\0", None);
        // Cut off in the middle of the id.
        check_environ(b"HOME=/root\0SLURM_JOB_ID=12", None);
    }
}
