//! The gRPC contract: generated messages and their conversion to our own types.

mod convert;

pub use convert::{WireError, record_from_wire, record_to_wire, table_from_wire, table_to_wire};

/// The stream between agents and host.
pub mod v1 {
    #![allow(clippy::all, clippy::allow_attributes, clippy::too_many_lines, reason = "generated")]
    #![allow(clippy::allow_attributes_without_reason, unused_qualifications, reason = "generated")]
    #![allow(missing_debug_implementations, unreachable_pub, reason = "generated")]
    tonic::include_proto!("gswarm.v1");
}

/// The protocol of the earlier Python tools.
pub mod legacy {
    #![allow(clippy::all, clippy::allow_attributes, clippy::too_many_lines, reason = "generated")]
    #![allow(clippy::allow_attributes_without_reason, unused_qualifications, reason = "generated")]
    #![allow(missing_debug_implementations, unreachable_pub, reason = "generated")]
    tonic::include_proto!("gswarm_profiler");
}

/// The path of every method of every service.
pub const METHODS: &[&str] = include!(concat!(env!("OUT_DIR"), "/methods.rs"));

/// The protocol version this build speaks, and the oldest it understands.
pub const PROTOCOL: u32 = 1;
/// The largest gRPC message either side accepts.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Records that may be unacknowledged on one stream.
pub const UNACKED_RECORDS_MAX: usize = 1_024;
/// Bytes that may be unacknowledged on one stream.
pub const UNACKED_BYTES_MAX: usize = 4 * 1024 * 1024;
