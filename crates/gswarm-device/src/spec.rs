//! What `--devices` says, and how it becomes a set of devices.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use gswarm_types::metric::{CATALOGUE, Metric, Tier};

use crate::Devices;
use crate::composite::Composite;
use crate::host::{HostDevices, HostOptions};
use crate::nvml::{self, NvmlDevices, NvmlOpenError, NvmlOptions};
use crate::replay::{ReplayDevices, ReplayError, ReplaySpec};
use crate::sim::SimDevices;
use crate::sim::spec::{SimSpec, SimSpecError};

/// Which devices a node has. The text form is what `--devices` takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceSpec {
    /// NVIDIA GPUs where there are any, otherwise a node without GPUs.
    #[default]
    Auto,
    /// NVIDIA GPUs; their absence is an error.
    Nvml,
    /// No GPUs, whatever the machine holds.
    None,
    Sim(SimSpec),
    Replay(ReplaySpec),
}

/// What `DeviceSpec` and `--extra-metrics` do not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error(
        "unknown devices `{text}`: known are auto, nvml, none, sim:8xh100,seed=7 and \
         replay:FILE[,node=NAME]"
    )]
    UnknownDevices { text: String },
    #[error("`{text}` names no file to replay: write replay:FILE[,node=NAME]")]
    NoReplayFile { text: String },
    #[error("`{text}` is not a simulation")]
    Sim { text: String, source: SimSpecError },
    #[error(
        "unknown metric `{name}`: the extra metrics are {known}; all others are always recorded"
    )]
    UnknownMetric { name: String, known: String },
}

/// How to open devices; `default()` is right for a node that was told nothing.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Metrics of tier `Extra` to record, see `parse_extra_metrics`.
    pub extra_metrics: Vec<&'static Metric>,
    /// The NVML library to load instead of the one that is found.
    pub nvml_library: Option<PathBuf>,
    /// Makes equal simulations on different nodes differ, down to the device ids.
    pub node_seed: u64,
    pub proc_root: PathBuf,
    pub sys_root: PathBuf,
    /// False leaves the machine's own CPU, memory, disks and interfaces out.
    pub host_metrics: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            extra_metrics: Vec::new(),
            nvml_library: None,
            node_seed: 0,
            proc_root: PathBuf::from("/proc"),
            sys_root: PathBuf::from("/sys"),
            host_metrics: true,
        }
    }
}

/// Why devices could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the NVIDIA driver; {}", .source.fix())]
    Nvml { source: NvmlOpenError },
    #[error(
        "this machine has a GPU ({gpus}) but its driver cannot be used; {}; to run without GPUs \
         pass --devices none", .source.fix()
    )]
    UnusableGpu { gpus: String, source: NvmlOpenError },
    #[error("cannot replay")]
    Replay { source: ReplayError },
}

impl DeviceSpec {
    /// True when the numbers do not come from this machine's GPUs.
    pub fn is_simulated(&self) -> bool {
        match self {
            Self::Auto | Self::Nvml | Self::None => false,
            Self::Sim(_) | Self::Replay(_) => true,
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "nvml" => Ok(Self::Nvml),
            None if text == "none" => Ok(Self::None),
            Some(("sim", rest)) => rest
                .parse()
                .map(Self::Sim)
                .map_err(|source| SpecError::Sim { text: text.to_owned(), source }),
            Some(("replay", rest)) => ReplaySpec::parse(rest)
                .map(Self::Replay)
                .ok_or_else(|| SpecError::NoReplayFile { text: text.to_owned() }),
            _ => Err(SpecError::UnknownDevices { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Nvml => f.write_str("nvml"),
            Self::None => f.write_str("none"),
            Self::Sim(spec) => write!(f, "sim:{spec}"),
            Self::Replay(spec) => write!(f, "replay:{spec}"),
        }
    }
}

/// Reads a comma separated list of metrics to record besides those that always are.
///
/// Names that are always recorded are accepted and add nothing.
pub fn parse_extra_metrics(list: &str) -> Result<Vec<&'static Metric>, SpecError> {
    let mut metrics: Vec<&'static Metric> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let metric = Metric::find(name).ok_or_else(|| SpecError::UnknownMetric {
            name: name.to_owned(),
            known: extra_names(),
        })?;
        if metric.tier == Tier::Extra && !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    Ok(metrics)
}

fn extra_names() -> String {
    let names: Vec<&str> = CATALOGUE
        .iter()
        .filter(|metric| metric.tier == Tier::Extra)
        .map(|metric| metric.name)
        .collect();
    names.join(", ")
}

/// Opens the devices of a node: its GPUs, real or not, and the machine itself.
pub fn open(spec: &DeviceSpec, options: OpenOptions) -> Result<Box<dyn Devices>, OpenError> {
    let mut parts = Vec::with_capacity(2);
    if let Some(gpus) = open_gpus(spec, &options)? {
        parts.push(gpus);
    }
    if options.host_metrics {
        let host = HostOptions {
            proc_root: options.proc_root,
            sys_root: options.sys_root,
            ..HostOptions::default()
        };
        let host: Box<dyn Devices> = Box::new(HostDevices::new(host));
        parts.push(host);
    }
    Ok(Box::new(Composite::new(parts)))
}

fn open_gpus(
    spec: &DeviceSpec,
    options: &OpenOptions,
) -> Result<Option<Box<dyn Devices>>, OpenError> {
    match spec {
        DeviceSpec::None => Ok(None),
        DeviceSpec::Auto => open_auto(options),
        DeviceSpec::Nvml => match open_nvml(options) {
            Ok(devices) => Ok(Some(Box::new(devices))),
            Err(source) => Err(OpenError::Nvml { source }),
        },
        DeviceSpec::Sim(spec) => {
            let devices = SimDevices::new(spec, options.node_seed, &options.extra_metrics);
            Ok(Some(Box::new(devices)))
        },
        DeviceSpec::Replay(spec) => match ReplayDevices::open(spec) {
            Ok(devices) => Ok(Some(Box::new(devices))),
            Err(source) => Err(OpenError::Replay { source }),
        },
    }
}

/// A machine without GPUs is a node like any other; a GPU that cannot be used must not be
/// mistaken for one.
fn open_auto(options: &OpenOptions) -> Result<Option<Box<dyn Devices>>, OpenError> {
    match open_nvml(options) {
        Ok(devices) => Ok(Some(Box::new(devices))),
        Err(source) => {
            let gpus = nvml::gpus_on_pci_bus(&options.sys_root);
            if gpus.is_empty() {
                tracing::info!(reason = %source, "no GPU on this machine");
                return Ok(None);
            }
            Err(OpenError::UnusableGpu { gpus: gpus.join(", "), source })
        },
    }
}

fn open_nvml(options: &OpenOptions) -> Result<NvmlDevices, NvmlOpenError> {
    NvmlDevices::open(NvmlOptions {
        library: options.nvml_library.clone(),
        extra_metrics: options.extra_metrics.clone(),
        ..NvmlOptions::default()
    })
}
