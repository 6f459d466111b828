//! What this user may do, and what is missing without more.

use std::fs;
use std::path::Path;

use super::Finding;

/// What a right gives, and how to get it.
struct Right {
    path: &'static str,
    costs: &'static str,
    fix: &'static str,
}

/// Files of the machine that only some users can read.
const READABLE: [Right; 2] = [
    Right {
        path: "/dev/nvidiactl",
        costs: "no GPU can be read",
        fix: "add the user to the group that owns it (`ls -l /dev/nvidiactl`), often `video`",
    },
    Right {
        path: "/proc/1/cgroup",
        costs: "jobs and users of other users' processes are not shown",
        fix: "mount /proc without `hidepid`, or give the agent's group `gid=` of that mount",
    },
];

pub(super) fn findings() -> Vec<Finding> {
    let is_root = rustix::process::geteuid().is_root();
    let mut findings = vec![if is_root {
        Finding::warning(
            "rights",
            "this is root, and gswarm needs no more than an ordinary user",
            "run it as a user of its own: `packaging/systemd` has units that do",
        )
    } else {
        Finding::ok("rights", "an ordinary user, which is all that is needed")
    }];
    findings.extend(READABLE.iter().filter_map(missing));
    findings
}

fn missing(right: &Right) -> Option<Finding> {
    let Right { path, costs, fix } = right;
    // What is not there at all is missing for another reason, which others look at.
    let denied = Path::new(path).try_exists().unwrap_or(false)
        && fs::File::open(path).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied);
    denied.then(|| Finding::warning("rights", format!("`{path}` cannot be read: {costs}"), *fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_a_missing_right() {
        let right = Right { path: "/nowhere/at/all", costs: "x", fix: "y" };
        assert!(missing(&right).is_none());
        let right = Right { path: "/proc/self/stat", costs: "x", fix: "y" };
        assert!(missing(&right).is_none());
    }
}
