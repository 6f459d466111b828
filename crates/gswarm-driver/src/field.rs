//! Values by number: what has no function of its own, several in one call.

use std::ffi::c_int;

use nvml_wrapper_sys::bindings as sys;

use crate::device::Device;
use crate::error::{NvmlError, check, symbol};
use crate::link::LINKS_MAX;

/// The most fields one call asks for: both directions of every link.
pub const FIELDS_MAX: usize = 2 * LINKS_MAX as usize;

/// One field of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldId {
    /// Temperature of the device memory in degrees Celsius.
    MemoryTemperature,
    /// Speed of every active NVLink, one direction, in megabytes per second.
    LinkSpeed,
    /// Payload received over one NVLink, in KiB since the driver was loaded.
    LinkReceived(u32),
    /// Payload sent over one NVLink, in KiB since the driver was loaded.
    LinkSent(u32),
}

/// What a field held and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldValue {
    pub value: f64,
    /// When the driver read it, in microseconds of its own clock.
    pub timestamp_us: i64,
}

impl FieldId {
    const fn number_and_scope(self) -> (u32, u32) {
        match self {
            Self::MemoryTemperature => (sys::field_id::NVML_FI_DEV_MEMORY_TEMP, 0),
            Self::LinkSpeed => (sys::field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0),
            Self::LinkReceived(link) => {
                (sys::field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, link)
            },
            Self::LinkSent(link) => (sys::field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, link),
        }
    }
}

impl Device {
    /// Reads one field.
    pub fn field(&self, id: FieldId) -> Result<FieldValue, NvmlError> {
        self.fields(&[id])?.pop().unwrap_or(Err(NvmlError::NotFound))
    }

    /// Reads up to `FIELDS_MAX` fields in one call; one answer for each, in order.
    pub fn fields(&self, ids: &[FieldId]) -> Result<Vec<Result<FieldValue, NvmlError>>, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetFieldValues)?;
        debug_assert!(ids.len() <= FIELDS_MAX, "too many fields");
        let mut values: Vec<_> = ids.iter().take(FIELDS_MAX).map(|id| request(*id)).collect();
        let count = c_int::try_from(values.len()).unwrap_or(0);
        // SAFETY: the handle is valid (see `Device`); `values` holds `count` initialised elements,
        // which the call fills in place.
        check(unsafe { call(self.handle(), count, values.as_mut_ptr()) })?;
        Ok(values.iter().map(answer).collect())
    }
}

const fn request(id: FieldId) -> sys::nvmlFieldValue_t {
    let (number, scope) = id.number_and_scope();
    sys::nvmlFieldValue_t {
        fieldId: number,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
        // An old driver may leave an unknown field untouched: that must not read as zero.
        nvmlReturn: sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED,
        value: sys::nvmlValue_t { ullVal: 0 },
    }
}

fn answer(field: &sys::nvmlFieldValue_t) -> Result<FieldValue, NvmlError> {
    check(field.nvmlReturn)?;
    // SAFETY: the request wrote all eight bytes, and any pattern of them is a valid integer.
    let bits = unsafe { field.value.ullVal };
    let [b0, b1, b2, b3, ..] = bits.to_ne_bytes();
    let low = [b0, b1, b2, b3];
    let value = match field.valueType {
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => f64::from_bits(bits),
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => f64::from(u32::from_ne_bytes(low)),
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => f64::from(i32::from_ne_bytes(low)),
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => {
            f64::from(u16::from_ne_bytes([b0, b1]))
        },
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => bits.cast_signed() as f64,
        sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG
        | sys::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => bits as f64,
        _ => return Err(NvmlError::NotSupported),
    };
    Ok(FieldValue { value, timestamp_us: field.timestamp })
}
