//! What can go wrong: while opening the library, and in one call.

use std::error::Error;
use std::path::PathBuf;

use nvml_wrapper_sys::bindings as sys;

/// The library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the NVIDIA management library was not found (tried {})", list(.tried))]
    NotFound { tried: Vec<PathBuf> },
    #[error("cannot load `{path}`")]
    Load { path: PathBuf, source: Box<dyn Error + Send + Sync> },
    #[error("`{path}` is not the NVIDIA management library")]
    NotNvml { path: PathBuf },
    #[error("the NVIDIA driver is not loaded (`{path}` found no kernel module)")]
    DriverNotLoaded { path: PathBuf },
    #[error("`{path}` and the loaded NVIDIA kernel module are of different versions")]
    VersionMismatch { path: PathBuf },
    #[error("no permission to talk to the NVIDIA driver through `{path}`")]
    NoPermission { path: PathBuf },
    #[error("`{path}` does not start")]
    Init { path: PathBuf, source: NvmlError },
}

impl OpenError {
    /// What the user can do about it, in one sentence.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => {
                "install the NVIDIA driver, or give the path of libnvidia-ml.so.1 if it is in an \
                 unusual place; in a container start it with `--gpus all`"
            },
            Self::Load { .. } | Self::NotNvml { .. } => {
                "give the path of the driver's own libnvidia-ml.so.1, not of a stub or of a \
                 library for another kind of machine"
            },
            Self::DriverNotLoaded { .. } => {
                "run `modprobe nvidia` and read `dmesg` if that fails; after a kernel update the \
                 driver must be built again"
            },
            Self::VersionMismatch { .. } => {
                "the driver was updated while the old kernel module is still loaded: reboot, or \
                 stop all GPU programs and reload the nvidia modules"
            },
            Self::NoPermission { .. } => {
                "give this user read and write access to /dev/nvidiactl and /dev/nvidia*"
            },
            Self::Init { .. } => "run `nvidia-smi` and read `dmesg` for lines that begin with NVRM",
        }
    }

    pub(crate) fn from_init(path: PathBuf, error: NvmlError) -> Self {
        const NOT_LOADED: u32 = sys::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED;
        const MISMATCH: u32 = sys::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        match error {
            NvmlError::NoSymbol => Self::NotNvml { path },
            NvmlError::NoPermission => Self::NoPermission { path },
            NvmlError::Code(code) if u32::try_from(code) == Ok(NOT_LOADED) => {
                Self::DriverNotLoaded { path }
            },
            NvmlError::Code(code) if u32::try_from(code) == Ok(MISMATCH) => {
                Self::VersionMismatch { path }
            },
            source => Self::Init { path, source },
        }
    }
}

/// One call did not give a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NvmlError {
    #[error("this GPU or driver does not offer it")]
    NotSupported,
    #[error("this version of the library has no such function")]
    NoSymbol,
    #[error("the GPU is lost")]
    GpuLost,
    #[error("the driver did not find it")]
    NotFound,
    #[error("the driver refuses it to this user")]
    NoPermission,
    #[error("the driver ran out of time")]
    Timeout,
    #[error("the driver answered with code {0}")]
    Code(i32),
}

impl NvmlError {
    /// True when asking again is useless: the function or the hardware is not there.
    pub const fn is_absence(self) -> bool {
        matches!(self, Self::NotSupported | Self::NoSymbol)
    }
}

/// Turns the code of a call into a result.
pub(crate) fn check(code: sys::nvmlReturn_t) -> Result<(), NvmlError> {
    Err(match code {
        sys::nvmlReturn_enum_NVML_SUCCESS => return Ok(()),
        sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => NvmlError::NotSupported,
        sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND => NvmlError::NoSymbol,
        sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => NvmlError::GpuLost,
        sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND
        | sys::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND => NvmlError::NotFound,
        sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => NvmlError::NoPermission,
        sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT => NvmlError::Timeout,
        other => NvmlError::Code(i32::try_from(other).unwrap_or(i32::MAX)),
    })
}

/// The function behind an optional symbol.
pub(crate) fn symbol<F: Copy, E>(symbol: &Result<F, E>) -> Result<F, NvmlError> {
    symbol.as_ref().copied().map_err(|_| NvmlError::NoSymbol)
}

fn list(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}
