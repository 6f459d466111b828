//! The loaded and initialised library.

use std::ffi::{CStr, c_char, c_uint};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvml_wrapper_sys::bindings as sys;

use crate::device::Device;
use crate::error::{NvmlError, OpenError, check, symbol};
use crate::search::{NvmlSearch, loaded_file};
use crate::turn::Turn;

/// Versions, names and UUIDs are shorter than this in every driver so far.
const TEXT_BYTES_MAX: usize = 96;

/// NVML, loaded and initialised; cheap to clone. The last clone, device, sample or event set that
/// goes away shuts it down and unloads it, so a thread stuck in a call keeps it alive.
#[derive(Clone)]
pub struct Nvml(Arc<Library>);

struct Library {
    functions: sys::NvmlLib,
    file: PathBuf,
    /// NVML is documented to be thread-safe, but two threads in GPM at the same time got `IN_USE`
    /// or crashed inside the library (H200, driver 580), so GPM calls take turns. A GPU that hangs
    /// in one costs the others their GPM values, not their ticks.
    gpm_turn: Arc<Turn>,
}

impl Nvml {
    /// Loads the first library that the search finds and initialises it.
    pub fn open(search: &NvmlSearch) -> Result<Self, OpenError> {
        let (functions, file) = load(search)?;
        let init = symbol(&functions.nvmlInit_v2)
            .map_err(|error| OpenError::from_init(file.clone(), error))?;
        // SAFETY: the symbol has this signature since NVML 5; it takes nothing and may be called
        // from any thread.
        let code = unsafe { init() };
        check(code).map_err(|error| OpenError::from_init(file.clone(), error))?;
        let gpm_turn = Turn::of(functions.nvmlGpmSampleGet.as_ref().map_or(0, |f| *f as usize));
        Ok(Self(Arc::new(Library { functions, file, gpm_turn })))
    }

    /// The library file that was loaded.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    pub fn driver_version(&self) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlSystemGetDriverVersion)?;
        read_text(|buffer, length| {
            // SAFETY: `buffer` is valid for `length` bytes, which is all the call writes.
            unsafe { call(buffer, length) }
        })
    }

    pub fn nvml_version(&self) -> Result<String, NvmlError> {
        let call = symbol(&self.functions().nvmlSystemGetNVMLVersion)?;
        read_text(|buffer, length| {
            // SAFETY: `buffer` is valid for `length` bytes, which is all the call writes.
            unsafe { call(buffer, length) }
        })
    }

    /// The newest CUDA version the driver supports, as major and minor.
    pub fn cuda_version(&self) -> Result<(i32, i32), NvmlError> {
        let call = symbol(&self.functions().nvmlSystemGetCudaDriverVersion_v2)?;
        let mut version = 0;
        // SAFETY: `version` is a valid place for the one number the call writes.
        check(unsafe { call(&raw mut version) })?;
        Ok((version / 1000, version % 1000 / 10))
    }

    pub fn device_count(&self) -> Result<u32, NvmlError> {
        let call = symbol(&self.functions().nvmlDeviceGetCount_v2)?;
        let mut count = 0;
        // SAFETY: `count` is a valid place for the one number the call writes.
        check(unsafe { call(&raw mut count) })?;
        Ok(count)
    }

    /// The GPU at one index; a lost one gives `NvmlError::GpuLost`.
    pub fn device(&self, index: u32) -> Result<Device, NvmlError> {
        Device::open(self.clone(), index)
    }

    pub(crate) fn gpm_turn(&self) -> &Turn {
        &self.0.gpm_turn
    }

    pub(crate) fn functions(&self) -> &sys::NvmlLib {
        &self.0.functions
    }
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvml").field("file", &self.0.file).finish_non_exhaustive()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if let Ok(shutdown) = symbol(&self.functions.nvmlShutdown) {
            // SAFETY: this is the only owner left, so no handle of this library is in use, and
            // `open` initialised it exactly once. A failure leaves nothing to do.
            unsafe { shutdown() };
        }
    }
}

fn load(search: &NvmlSearch) -> Result<(sys::NvmlLib, PathBuf), OpenError> {
    let tried = search.candidates();
    for candidate in &tried {
        // SAFETY: loading runs the library's initialisers; the candidates are the driver's own
        // library or a file that the user named for this purpose.
        match unsafe { sys::NvmlLib::new(candidate) } {
            Ok(functions) if candidate.is_absolute() => return Ok((functions, candidate.clone())),
            Ok(functions) => {
                return Ok((functions, loaded_file().unwrap_or_else(|| candidate.clone())));
            },
            Err(source) if search.library.is_some() => {
                return Err(OpenError::Load { path: candidate.clone(), source: Box::new(source) });
            },
            // The next place may have one that loads.
            Err(_) => {},
        }
    }
    Err(OpenError::NotFound { tried })
}

/// Calls something that fills a buffer with text.
pub(crate) fn read_text(
    call: impl FnOnce(*mut c_char, c_uint) -> sys::nvmlReturn_t,
) -> Result<String, NvmlError> {
    let mut buffer = [0 as c_char; TEXT_BYTES_MAX];
    check(call(buffer.as_mut_ptr(), c_uint::try_from(TEXT_BYTES_MAX).unwrap_or(0)))?;
    Ok(text(&buffer))
}

/// The text up to the first zero byte.
pub(crate) fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|c| c.to_ne_bytes()[0]).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}
