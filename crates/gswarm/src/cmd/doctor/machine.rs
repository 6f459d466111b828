//! Ports, clock and limits of this machine.

use std::net::{IpAddr, Ipv4Addr};

use gswarm_types::{Clock, Micros};
use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::clock::SystemClock;
use crate::config::Settings;
use crate::ports::{self, Holder, Owner};

/// 2024-01-01: no machine with this program believes in an earlier time for a good reason.
const WALL_MIN: Micros = Micros::from_secs(1_704_067_200);
/// 2100-01-01.
const WALL_MAX: Micros = Micros::from_secs(4_102_444_800);
/// A host with 1,000 nodes, its segments and its readers.
const OPEN_FILES_WANTED: u64 = 4_096;

/// Who has the ports a host would take.
pub(super) async fn ports(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let keys = ["host.http_port", "host.model_port"];
    let others = keys.iter().filter_map(|key| settings.get(key));
    let mut seen = Vec::new();
    for port in std::iter::once(settings.main_port()).chain(others) {
        if port == 0 || seen.contains(&port) {
            continue;
        }
        seen.push(port);
        let holder = ports::holder(IpAddr::V4(Ipv4Addr::LOCALHOST), port).await;
        findings.push(port_finding(port, &holder));
    }
    findings
}

fn port_finding(port: u16, holder: &Holder) -> Finding {
    let name = |owner: &Option<Owner>| {
        owner.as_ref().map_or_else(
            || "a process of another user".to_owned(),
            |owner| format!("`{}` (pid {})", owner.program, owner.pid),
        )
    };
    match holder {
        Holder::Nobody => Finding::ok("port", format!("{port} is free")),
        Holder::Gswarm { owner, version } => Finding::ok(
            "port",
            format!("{port} belongs to a gswarm host {version}, {}", name(owner)),
        ),
        Holder::Other { owner } => Finding::warning(
            "port",
            format!("{port} belongs to {}", name(owner)),
            "start the host with --port, --http-port and --model-port (0 turns the last two off)",
        ),
    }
}

pub(super) fn clock() -> Vec<Finding> {
    vec![clock_finding(SystemClock.wall(), SystemClock.mono())]
}

fn clock_finding(wall: Micros, mono: Micros) -> Finding {
    let shown = crate::units::time(&gswarm_api::timestamp::rfc3339(wall));
    let fix = "set the clock: `timedatectl set-ntp true`";
    if !(WALL_MIN..WALL_MAX).contains(&wall) {
        Finding::error("clock", format!("this machine believes it is {shown}"), fix)
    } else if mono <= Micros::ZERO {
        Finding::error(
            "clock",
            "the kernel has no clock that counts from boot",
            "use Linux 2.6.39 or later",
        )
    } else {
        Finding::ok("clock", shown)
    }
}

pub(super) fn open_files() -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile);
    vec![open_files_finding(limit.current, limit.maximum)]
}

/// `None` means without limit.
fn open_files_finding(current: Option<u64>, maximum: Option<u64>) -> Finding {
    match current {
        Some(files) if files < OPEN_FILES_WANTED => {
            let reachable = maximum.is_none_or(|maximum| maximum >= OPEN_FILES_WANTED);
            let fix = if reachable {
                format!("run `ulimit -n {OPEN_FILES_WANTED}` before a host with many nodes")
            } else {
                "raise `nofile` in /etc/security/limits.conf, or LimitNOFILE= in the unit"
                    .to_owned()
            };
            Finding::warning("limit", format!("{files} open files per process"), fix)
        },
        Some(files) => Finding::ok("limit", format!("{files} open files per process")),
        None => Finding::ok("limit", "any number of open files per process"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[track_caller]
    fn check(finding: &Finding, level: Level, message: &str) {
        assert_eq!((finding.level, finding.message.as_str()), (level, message));
    }

    #[test]
    fn clocks_before_this_program_are_wrong() {
        let good = Micros::from_secs(1_800_000_000);
        check(&clock_finding(good, Micros(1)), Level::Ok, "2027-01-15 08:00:00Z");
        check(
            &clock_finding(Micros::ZERO, Micros(1)),
            Level::Error,
            "this machine believes it is 1970-01-01 00:00:00Z",
        );
    }

    #[test]
    fn ports_name_their_owner() {
        let owner = Some(Owner { pid: 7, program: "nginx".to_owned() });
        check(&port_finding(8090, &Holder::Nobody), Level::Ok, "8090 is free");
        let other = Holder::Other { owner: owner.clone() };
        check(&port_finding(8090, &other), Level::Warning, "8090 belongs to `nginx` (pid 7)");
        let ours = Holder::Gswarm { owner, version: "1.0.0".to_owned() };
        check(
            &port_finding(8090, &ours),
            Level::Ok,
            "8090 belongs to a gswarm host 1.0.0, `nginx` (pid 7)",
        );
    }

    #[test]
    fn few_open_files_are_a_warning() {
        check(&open_files_finding(Some(1024), None), Level::Warning, "1024 open files per process");
        check(&open_files_finding(None, None), Level::Ok, "any number of open files per process");
    }
}
