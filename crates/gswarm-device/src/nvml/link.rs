//! NVLinks of one GPU, their traffic, and how all GPUs of the machine reach each other.

use gswarm_driver::{Ancestor, Device, FieldId, LINKS_MAX, NvmlError, RemoteKind};
use gswarm_types::{PeerKind, PeerLink};

/// The counters of links are in KiB.
const BYTES_PER_KIBIBYTE: f64 = 1024.0;

/// Where a link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remote {
    Switch,
    /// A GPU, by its PCI address.
    Gpu(String),
    /// A CPU, or something the driver does not name.
    Other,
}

/// One active link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) number: u32,
    pub(super) remote: Remote,
}

/// What one GPU knows of its way to the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct End<'a> {
    /// `None` for a GPU that has not answered yet.
    pub(super) pci: Option<&'a str>,
    /// Those that are up.
    pub(super) links: &'a [&'a Link],
    /// Speed of one link, one direction.
    pub(super) link_bytes_per_second: Option<u64>,
    /// The PCIe way to the GPUs at these indices.
    pub(super) paths: &'a [(u32, PeerKind)],
}

/// The links of a GPU that exist and are up.
pub(super) fn scan(device: &Device) -> Vec<Link> {
    let up = (0..LINKS_MAX).filter(|number| device.link_active(*number) == Ok(true));
    up.map(|number| Link { number, remote: remote(device, number) }).collect()
}

/// All links known so far, with what is known now of those that are up.
pub(super) fn merge(known: &[Link], up: &[Link]) -> Vec<Link> {
    let down = known.iter().filter(|link| up.iter().all(|other| other.number != link.number));
    let mut all: Vec<Link> = down.cloned().chain(up.iter().cloned()).collect();
    all.sort_by_key(|link| link.number);
    all
}

fn remote(device: &Device, number: u32) -> Remote {
    match device.link_remote_kind(number) {
        Ok(RemoteKind::Switch) => Remote::Switch,
        Ok(RemoteKind::Other) => Remote::Other,
        // A driver too old to name the kind still gives the address, and an address that belongs
        // to no GPU of this machine is left out later.
        Ok(RemoteKind::Gpu) | Err(_) => {
            device.link_remote_pci(number).map_or(Remote::Other, Remote::Gpu)
        },
    }
}

/// Speed of one active link, one direction.
pub(super) fn link_bytes_per_second(device: &Device) -> Option<u64> {
    let megabytes = device.field(FieldId::LinkSpeed).ok()?.value;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked range")]
    (1.0..1e9).contains(&megabytes).then_some((megabytes * 1e6) as u64)
}

/// The PCIe way to every other GPU that the driver knows one for.
pub(super) fn paths(device: &Device, count: u32) -> Vec<(u32, PeerKind)> {
    let others = (0..count).filter(|index| *index != device.index());
    others
        .filter_map(|index| {
            let other = device.nvml().device(index).ok()?;
            device.common_ancestor(&other).ok().map(|ancestor| (index, kind(ancestor)))
        })
        .collect()
}

const fn kind(ancestor: Ancestor) -> PeerKind {
    match ancestor {
        Ancestor::Board | Ancestor::OneSwitch | Ancestor::SeveralSwitches => PeerKind::PcieSwitch,
        Ancestor::HostBridge => PeerKind::PcieHostBridge,
        Ancestor::NumaNode => PeerKind::SameSocket,
        Ancestor::System => PeerKind::CrossSocket,
    }
}

/// The view of every GPU. NVLinks to a switch are one entry without a remote: which GPU they lead
/// to is not a fact about the link. Two GPUs joined by NVLink have no PCIe entry, since traffic
/// between them does not go that way.
pub(super) fn topology(ends: &[End<'_>]) -> Vec<PeerLink> {
    let mut all = Vec::new();
    for (device, end) in (0_u32..).zip(ends) {
        let switched = count(end, |remote| *remote == Remote::Switch);
        if switched > 0 {
            all.push(nvlink(device, None, end, switched));
        }
        for (other, far) in (0_u32..).zip(ends).filter(|(other, _)| *other != device) {
            let direct = count(end, |remote| leads_to(remote, far));
            let far_switched = count(far, |remote| *remote == Remote::Switch);
            if direct > 0 {
                all.push(nvlink(device, Some(other), end, direct));
            } else if switched == 0 || far_switched == 0 {
                let path = end.paths.iter().find(|(index, _)| *index == other);
                all.extend(path.map(|(_, kind)| PeerLink {
                    device,
                    remote: Some(other),
                    kind: *kind,
                    links: 0,
                    bytes_per_second_max: None,
                }));
            }
        }
    }
    all
}

fn count(end: &End<'_>, wanted: impl Fn(&Remote) -> bool) -> u32 {
    end.links.iter().map(|link| u32::from(wanted(&link.remote))).sum()
}

fn leads_to(remote: &Remote, far: &End<'_>) -> bool {
    match (remote, far.pci) {
        (Remote::Gpu(address), Some(pci)) => address.eq_ignore_ascii_case(pci),
        (Remote::Gpu(_) | Remote::Switch | Remote::Other, _) => false,
    }
}

fn nvlink(device: u32, remote: Option<u32>, end: &End<'_>, links: u32) -> PeerLink {
    PeerLink {
        device,
        remote,
        kind: PeerKind::Nvlink,
        links,
        bytes_per_second_max: end.link_bytes_per_second.map(|speed| speed * u64::from(links)),
    }
}

/// Traffic of each link from counters, for GPUs without GPM.
#[derive(Debug, Default)]
pub(super) struct LinkCounters {
    /// Receive and transmit of each link at the last reading.
    last: Vec<[Option<Counter>; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Counter {
    kibibytes: f64,
    timestamp_us: i64,
}

impl LinkCounters {
    /// Received and sent bytes per second of each link since the last call; `None` at the first
    /// and where a counter went back.
    pub(super) fn read(
        &mut self,
        device: &Device,
        links: &[Link],
    ) -> Result<Vec<[Option<f64>; 2]>, NvmlError> {
        let numbers = links.iter().map(|link| link.number);
        let ids: Vec<_> =
            numbers.flat_map(|n| [FieldId::LinkReceived(n), FieldId::LinkSent(n)]).collect();
        let mut fields = device.fields(&ids)?.into_iter().map(|field| {
            let field = field.ok()?;
            Some(Counter { kibibytes: field.value, timestamp_us: field.timestamp_us })
        });
        let now: Vec<_> =
            links.iter().map(|_| [fields.next().flatten(), fields.next().flatten()]).collect();
        let before = std::mem::replace(&mut self.last, now);
        let before = before.into_iter().chain(std::iter::repeat([None, None]));
        Ok(before.zip(&self.last).map(|(a, b)| [rate(a[0], b[0]), rate(a[1], b[1])]).collect())
    }
}

fn rate(before: Option<Counter>, after: Option<Counter>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let seconds = (after.timestamp_us - before.timestamp_us) as f64 / 1e6;
    let bytes = (after.kibibytes - before.kibibytes) * BYTES_PER_KIBIBYTE;
    (seconds > 0.0 && bytes >= 0.0).then(|| bytes / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end<'a>(pci: &'a str, links: &'a [&'a Link], paths: &'a [(u32, PeerKind)]) -> End<'a> {
        End { pci: Some(pci), links, link_bytes_per_second: Some(25), paths }
    }

    fn to(remote: &Remote) -> Vec<Link> {
        (0..4).map(|number| Link { number, remote: remote.clone() }).collect()
    }

    #[track_caller]
    fn check(ends: &[End<'_>], expected: &str) {
        let shown: Vec<String> = topology(ends)
            .iter()
            .map(|peer| {
                let remote =
                    peer.remote.map_or_else(|| "switch".to_owned(), |remote| remote.to_string());
                format!("{}-{remote}:{}x{}", peer.device, peer.kind.as_str(), peer.links)
            })
            .collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn switched_links_have_no_remote_and_no_pairs() {
        let links = to(&Remote::Switch);
        let links: Vec<&Link> = links.iter().collect();
        let paths = [(0, PeerKind::CrossSocket), (1, PeerKind::CrossSocket)];
        check(
            &[end("A", &links, &paths), end("B", &links, &paths)],
            "0-switch:nvlinkx4 1-switch:nvlinkx4",
        );
    }

    #[test]
    fn direct_pairs_are_named_and_the_rest_goes_over_pcie() {
        let (to_a, to_b) = (to(&Remote::Gpu("a".to_owned())), to(&Remote::Gpu("B".to_owned())));
        let (to_a, to_b): (Vec<&Link>, Vec<&Link>) = (to_a.iter().collect(), to_b.iter().collect());
        let paths = [0, 1, 2].map(|index| (index, PeerKind::PcieHostBridge));
        check(
            &[end("A", &to_b, &paths), end("B", &to_a, &paths), end("C", &[], &paths)],
            "0-1:nvlinkx4 0-2:pcie_host_bridgex0 1-0:nvlinkx4 1-2:pcie_host_bridgex0 \
             2-0:pcie_host_bridgex0 2-1:pcie_host_bridgex0",
        );
    }

    #[test]
    fn unknown_ends_are_left_out() {
        let links = to(&Remote::Other);
        let links: Vec<&Link> = links.iter().collect();
        check(&[end("A", &links, &[])], "");
    }

    #[test]
    fn counters_become_rates() {
        let counter = |kibibytes, timestamp_us| Some(Counter { kibibytes, timestamp_us });
        assert_eq!(rate(counter(10.0, 0), counter(30.0, 500_000)), Some(40.0 * 1024.0));
        assert_eq!(rate(counter(30.0, 0), counter(10.0, 500_000)), None);
        assert_eq!(rate(counter(10.0, 5), counter(10.0, 5)), None);
        assert_eq!(rate(None, counter(10.0, 5)), None);
    }
}
