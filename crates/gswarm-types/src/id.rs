//! Identifiers: hexadecimal strings in JSON, small integers or UUIDs in memory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text was not an identifier of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {kind}")]
pub struct ParseIdError {
    kind: &'static str,
    text: String,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an identifier minted at the edge.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// The sixteen bytes, in wire order.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| ParseIdError { kind: $kind, text: text.chars().take(64).collect() })
            }
        }
    };
}

uuid_id!(
    /// A machine, for as long as its agent's state directory lives there.
    NodeId,
    "node id"
);
uuid_id!(
    /// One recorded session; names can be used again, ids cannot.
    SessionId,
    "session id"
);
uuid_id!(
    /// One data directory of one host.
    StorageId,
    "storage id"
);

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                u64::from_str_radix(text, 16)
                    .ok()
                    .filter(|_| text.len() == 16 && !text.starts_with('+'))
                    .map(Self)
                    .ok_or_else(|| ParseIdError { kind: $kind, text: text.chars().take(64).collect() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// One run of one agent: random, minted at each start.
    Incarnation,
    "incarnation"
);
hex_id!(
    /// The content of a table, so that both ends know which one numbers belong to.
    TableDigest,
    "table digest"
);

/// Vendor UUID of a device, or its PCI address, disk or interface name where none exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceId(pub String);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_in_json() {
        let text = serde_json::to_string(&Incarnation(255)).unwrap();
        assert_eq!(text, "\"00000000000000ff\"");
        assert_eq!(serde_json::from_str::<Incarnation>(&text).unwrap(), Incarnation(255));
        for bad in ["\"ff\"", "\"00000000000000fg\"", "255", "\"+0000000000000ff\""] {
            assert!(serde_json::from_str::<Incarnation>(bad).is_err(), "{bad}");
        }
    }
}
