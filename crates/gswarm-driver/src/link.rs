//! How GPUs are joined: NVLinks, what is at their other end, and the PCIe tree.

use nvml_wrapper_sys::bindings as sys;

use crate::device::{Device, empty_pci_info};
use crate::error::{NvmlError, check, symbol};
use crate::library::text;

/// The most NVLinks a GPU has.
pub const LINKS_MAX: u32 = sys::NVML_NVLINK_MAX_LINKS;

/// What an NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteKind {
    Gpu,
    Switch,
    /// A CPU, or something this version does not know.
    Other,
}

/// The closest thing that two GPUs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ancestor {
    Board,
    OneSwitch,
    SeveralSwitches,
    HostBridge,
    NumaNode,
    System,
}

/// Whether one GPU may reach the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAccess {
    Possible,
    Impossible,
}

impl Device {
    /// Whether a link is up; a link that does not exist gives `NotSupported` or a code.
    pub fn link_active(&self, link: u32) -> Result<bool, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetNvLinkState)?;
        let mut state = sys::nvmlEnableState_enum_NVML_FEATURE_DISABLED;
        // SAFETY: the handle is valid (see `Device`); `state` is a valid place for the answer.
        check(unsafe { call(self.handle(), link, &raw mut state) })?;
        Ok(state == sys::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    pub fn link_remote_kind(&self, link: u32) -> Result<RemoteKind, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetNvLinkRemoteDeviceType)?;
        let mut kind = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
        // SAFETY: the handle is valid (see `Device`); `kind` is a valid place for the answer.
        check(unsafe { call(self.handle(), link, &raw mut kind) })?;
        Ok(match kind {
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => RemoteKind::Gpu,
            sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => RemoteKind::Switch,
            _ => RemoteKind::Other,
        })
    }

    /// PCI address of the other end of a link, in the form of `Device::pci_bus_id`.
    pub fn link_remote_pci(&self, link: u32) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetNvLinkRemotePciInfo_v2)?;
        let mut info = empty_pci_info();
        // SAFETY: the handle is valid (see `Device`); `info` has the layout of version 3.
        check(unsafe { call(self.handle(), link, &raw mut info) })?;
        Ok(text(&info.busId))
    }

    pub fn common_ancestor(&self, other: &Self) -> Result<Ancestor, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetTopologyCommonAncestor)?;
        let mut level = sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM;
        // SAFETY: both handles are valid (see `Device`); `level` is a valid place for the answer.
        check(unsafe { call(self.handle(), other.handle(), &raw mut level) })?;
        match level {
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_INTERNAL => Ok(Ancestor::Board),
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SINGLE => Ok(Ancestor::OneSwitch),
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_MULTIPLE => Ok(Ancestor::SeveralSwitches),
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_HOSTBRIDGE => Ok(Ancestor::HostBridge),
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_NODE => Ok(Ancestor::NumaNode),
            sys::nvmlGpuLevel_enum_NVML_TOPOLOGY_SYSTEM => Ok(Ancestor::System),
            _ => Err(NvmlError::NotFound),
        }
    }

    /// Whether this GPU may read the memory of the other.
    pub fn peer_access(&self, other: &Self) -> Result<PeerAccess, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetP2PStatus)?;
        let read = sys::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ;
        let mut status = sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_UNKNOWN;
        // SAFETY: both handles are valid (see `Device`); `status` is a valid place for the answer.
        check(unsafe { call(self.handle(), other.handle(), read, &raw mut status) })?;
        Ok(match status {
            sys::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK => PeerAccess::Possible,
            _ => PeerAccess::Impossible,
        })
    }
}
