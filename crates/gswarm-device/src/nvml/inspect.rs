//! What `doctor` shows: the library, versions, GPUs, and what to do when something is wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gswarm_driver::{Device, Nvml, NvmlError, NvmlSearch};

use super::gpm::Gpm;
use super::thread::{Threads, lock};

/// How long the driver may take to answer everything.
const INSPECT_MAX: Duration = Duration::from_secs(5);

const NVIDIA_VENDOR: &str = "0x10de";
/// Display controllers, of which 3D controllers are one kind.
const DISPLAY_CLASS: &str = "0x03";

/// What `doctor` shows about the NVIDIA driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The library file that was loaded.
    pub library: Option<PathBuf>,
    pub driver_version: Option<String>,
    pub nvml_version: Option<String>,
    /// The newest CUDA version the driver supports.
    pub cuda_version: Option<String>,
    pub gpus: Vec<InspectedGpu>,
    /// What went wrong, if anything did.
    pub problem: Option<Problem>,
}

/// One GPU of an inspection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InspectedGpu {
    /// As the driver counts.
    pub index: u32,
    pub uuid: Option<String>,
    pub name: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// Whether SM, tensor and memory activity can be read; `None` when it could not be asked.
    pub gpm: Option<bool>,
    pub problem: Option<Problem>,
}

/// Something wrong and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub fix: String,
}

/// Loads the library and asks for versions and GPUs. A driver that hangs is reported as such, with
/// what it said until then.
pub fn inspect(library: Option<&Path>) -> Inspection {
    let search = NvmlSearch::for_library(library);
    let found = Arc::new(Mutex::new(Inspection::default()));
    let shared = Arc::clone(&found);
    let mut threads = Threads::new();
    let started = threads.spawn("nvml-inspect".to_owned(), move || look(&search, &shared));
    let ended = threads.join(INSPECT_MAX);
    let mut inspection = lock(&found).clone();
    if let Err(error) = started {
        inspection.problem = Some(Problem {
            message: format!("cannot start a thread: {error}"),
            fix: "raise the limit of threads for this user (`ulimit -u`)".to_owned(),
        });
    } else if !ended {
        inspection.problem = Some(Problem {
            message: "the NVIDIA driver does not answer".to_owned(),
            fix:
                "read `dmesg` for lines that begin with NVRM; a hung GPU needs a reset or a reboot"
                    .to_owned(),
        });
    }
    inspection
}

/// PCI addresses of NVIDIA display and 3D controllers below `sys` (normally `/sys`), sorted. One
/// that is here but not in an inspection has a driver that fails.
pub fn gpus_on_pci_bus(sys: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(sys.join("bus/pci/devices")) else {
        return Vec::new();
    };
    let mut found: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            starts_with(&entry.path().join("vendor"), NVIDIA_VENDOR)
                && starts_with(&entry.path().join("class"), DISPLAY_CLASS)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

fn starts_with(file: &Path, prefix: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.starts_with(prefix))
}

/// Fills in one thing after the other, so that what a hang leaves behind is still shown.
fn look(search: &NvmlSearch, found: &Mutex<Inspection>) {
    let nvml = match Nvml::open(search) {
        Ok(nvml) => nvml,
        Err(error) => {
            let fix = error.fix().to_owned();
            lock(found).problem = Some(Problem { message: chain(&error), fix });
            return;
        },
    };
    lock(found).library = Some(nvml.file().to_owned());
    let driver_version = nvml.driver_version().ok();
    lock(found).driver_version = driver_version;
    let nvml_version = nvml.nvml_version().ok();
    lock(found).nvml_version = nvml_version;
    let cuda = nvml.cuda_version().ok().map(|(major, minor)| format!("{major}.{minor}"));
    lock(found).cuda_version = cuda;
    match nvml.device_count() {
        Ok(count) => {
            for index in 0..count {
                lock(found).gpus.push(InspectedGpu { index, ..InspectedGpu::default() });
                let gpu = look_at(&nvml, index);
                if let Some(last) = lock(found).gpus.last_mut() {
                    *last = gpu;
                }
            }
        },
        Err(error) => lock(found).problem = Some(problem(error)),
    }
}

fn look_at(nvml: &Nvml, index: u32) -> InspectedGpu {
    let identity = nvml.device(index).and_then(|device| Ok((device.uuid()?, device)));
    match identity {
        Ok((uuid, device)) => InspectedGpu {
            index,
            uuid: Some(uuid),
            name: device.name().ok(),
            pci: device.pci_bus_id().ok(),
            gpm: gpm(&device),
            problem: None,
        },
        Err(error) => {
            InspectedGpu { index, problem: Some(problem(error)), ..InspectedGpu::default() }
        },
    }
}

/// Trying is the only honest test: the hardware may have it and the driver refuse it.
fn gpm(device: &Device) -> Option<bool> {
    match device.has_gpm() {
        Ok(true) => Some(Gpm::open(device).is_ok()),
        Ok(false) => Some(false),
        Err(error) => error.is_absence().then_some(false),
    }
}

fn problem(error: NvmlError) -> Problem {
    let fix = match error {
        NvmlError::GpuLost => "the GPU fell off the bus: read `dmesg`, then reboot the machine",
        NvmlError::NoPermission => "give this user read and write access to /dev/nvidia*",
        NvmlError::NotSupported
        | NvmlError::NoSymbol
        | NvmlError::NotFound
        | NvmlError::Timeout
        | NvmlError::Code(_) => "run `nvidia-smi` and read `dmesg` for lines that begin with NVRM",
    };
    Problem { message: error.to_string(), fix: fix.to_owned() }
}

/// The error with its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
