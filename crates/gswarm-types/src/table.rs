//! What the numbers of a record belong to: devices and the metrics recorded of each.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{DeviceId, TableDigest};
use crate::metric::{Metric, Storage};

/// What kind of thing a value describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Gpu,
    Link,
    Node,
    Disk,
    Nic,
}

impl Scope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Link => "link",
            Self::Node => "node",
            Self::Disk => "disk",
            Self::Nic => "nic",
        }
    }
}

/// The name of a metric; newer agents may send names this version does not know.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricName(Cow<'static, str>);

impl MetricName {
    /// Shares the catalogue's text where the name is known.
    pub fn new(name: &str) -> Self {
        match Metric::find(name) {
            Some(metric) => Self(Cow::Borrowed(metric.name)),
            None => Self(Cow::Owned(name.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The catalogue entry, `None` for a name of a newer version.
    pub fn known(&self) -> Option<&'static Metric> {
        Metric::find(&self.0)
    }

    /// Unknown metrics are kept as floats, which hold any number.
    pub fn storage(&self) -> Storage {
        self.known().map_or(Storage::Float, |metric| metric.storage)
    }
}

impl From<&'static Metric> for MetricName {
    fn from(metric: &'static Metric) -> Self {
        Self(Cow::Borrowed(metric.name))
    }
}

impl fmt::Debug for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for MetricName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MetricName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer).map(|name| Self::new(&name))
    }
}

/// One device (or the node itself, a link, a disk, an interface) of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub id: DeviceId,
    pub scope: Scope,
    /// Position among the node's devices of the same scope, as the driver counts.
    pub index: u32,
    /// Product, disk or interface name.
    pub name: String,
    /// The GPU that a link belongs to, by index among the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// True for simulated and replayed devices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// One position in the cells of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Position in `Table::devices`.
    #[serde(rename = "d")]
    pub device: u32,
    #[serde(rename = "m")]
    pub metric: MetricName,
}

/// Devices and columns; the cells of a record stand in the order of the columns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    pub devices: Vec<DeviceInfo>,
    pub columns: Vec<Column>,
}

impl Table {
    /// A digest of the whole content: equal tables, equal digests, on every machine and version.
    pub fn digest(&self) -> TableDigest {
        let mut hash = Fnv::new();
        for device in &self.devices {
            hash.text(&device.id.0);
            hash.text(device.scope.as_str());
            hash.number(device.index);
            hash.text(&device.name);
            hash.number(device.parent.map_or(u32::MAX, |parent| parent));
            hash.number(u32::from(device.simulated));
        }
        for column in &self.columns {
            hash.number(column.device);
            hash.text(column.metric.as_str());
        }
        TableDigest(hash.0)
    }

    /// True when every column points at a device.
    pub fn is_consistent(&self) -> bool {
        self.columns.iter().all(|c| usize::try_from(c.device).is_ok_and(|d| d < self.devices.len()))
    }

    /// The device that a column describes.
    pub fn device_of(&self, column: &Column) -> Option<&DeviceInfo> {
        self.devices.get(usize::try_from(column.device).ok()?)
    }

    /// The position of one metric of one device.
    pub fn position(&self, device: usize, metric: &str) -> Option<usize> {
        self.columns.iter().position(|column| {
            usize::try_from(column.device) == Ok(device) && column.metric.as_str() == metric
        })
    }

    /// The devices of one scope with their position in the table.
    pub fn devices_of(&self, scope: Scope) -> impl Iterator<Item = (usize, &DeviceInfo)> {
        self.devices.iter().enumerate().filter(move |(_, device)| device.scope == scope)
    }
}

/// FNV-1a, 64 bits: stable across versions and platforms, unlike the standard hasher.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(&[0xff]);
    }

    fn number(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_stable_and_tells_tables_apart() {
        let device = DeviceInfo {
            id: DeviceId("GPU-1".to_owned()),
            scope: Scope::Gpu,
            index: 0,
            name: "NVIDIA H200".to_owned(),
            parent: None,
            simulated: false,
        };
        let column = Column { device: 0, metric: MetricName::new("gpu_utilization") };
        let table = Table { devices: vec![device.clone()], columns: vec![column.clone()] };
        assert_eq!(table.digest().to_string(), "1c6a76846907d0a1");
        let mut other = table.clone();
        other.devices[0].simulated = true;
        assert_ne!(other.digest(), table.digest());
        assert!(table.is_consistent());
        other.columns[0].device = 1;
        assert!(!other.is_consistent());
    }
}
