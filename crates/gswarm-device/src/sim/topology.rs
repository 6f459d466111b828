//! How the GPUs of a simulated node reach each other.

use gswarm_types::{PeerKind, PeerLink};

use super::spec::SimGroup;

/// Boards with NVSwitch carry eight GPUs; fewer of them are taken for single cards on PCIe.
const SWITCHED_GPUS_MIN: u32 = 8;

/// NVLinks of each GPU of a group that lead to a switch.
pub(super) fn nvlinks_in_use(group: SimGroup) -> u32 {
    if group.count >= SWITCHED_GPUS_MIN { group.model.model().nvlinks } else { 0 }
}

/// Every connection as both ends see it.
pub(super) fn peers(groups: &[SimGroup]) -> Vec<PeerLink> {
    let gpus: Vec<(usize, SimGroup)> = groups
        .iter()
        .enumerate()
        .flat_map(|(number, group)| (0..group.count).map(move |_| (number, *group)))
        .collect();
    let mut links = Vec::new();
    for (device, (number, group)) in (0..).zip(&gpus) {
        let nvlinks = nvlinks_in_use(*group);
        if nvlinks > 0 {
            let bytes = f64::from(nvlinks) * group.model.model().nvlink_bytes_per_second;
            #[expect(clippy::cast_possible_truncation, reason = "a rate of a few hundred GB/s")]
            #[expect(clippy::cast_sign_loss, reason = "a rate is never negative")]
            let bytes_per_second_max = Some(bytes as u64);
            links.push(PeerLink {
                device,
                remote: None,
                kind: PeerKind::Nvlink,
                links: nvlinks,
                bytes_per_second_max,
            });
        }
        for (remote, (other, _)) in (0..).zip(&gpus) {
            let switched = nvlinks > 0 && other == number;
            if remote != device && !switched {
                let kind = pcie_kind(device, remote, gpus.len());
                links.push(PeerLink {
                    device,
                    remote: Some(remote),
                    kind,
                    links: 0,
                    bytes_per_second_max: None,
                });
            }
        }
    }
    links
}

/// Two sockets, each with half of the GPUs; pairs share a PCIe switch.
fn pcie_kind(one: u32, other: u32, gpus: usize) -> PeerKind {
    let half = u32::try_from(gpus.div_ceil(2)).unwrap_or(u32::MAX).max(2);
    if one / 2 == other / 2 {
        PeerKind::PcieSwitch
    } else if (one < half) != (other < half) {
        PeerKind::CrossSocket
    } else if one / 4 == other / 4 {
        PeerKind::PcieHostBridge
    } else {
        PeerKind::SameSocket
    }
}
