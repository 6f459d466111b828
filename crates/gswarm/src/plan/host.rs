//! From flags and settings to a host's plan.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use gswarm_host::{AccessConfig, Limits, Network};
use gswarm_store::journal::SegmentLimits;
use gswarm_types::{Micros, Period};

use super::{HostPlan, HostSettings, Retention};
use crate::args::host::{ListenArgs, RecorderArgs};
use crate::config::Settings;
use crate::fault::Fault;
use crate::paths::Home;

/// What `host start` and `up` ask for.
#[derive(Debug)]
pub(crate) struct HostWish<'a> {
    pub(crate) listen: &'a ListenArgs,
    pub(crate) recorder: &'a RecorderArgs,
    pub(crate) simulated: bool,
}

impl HostPlan {
    pub(crate) fn new(
        wish: &HostWish<'_>,
        settings: &Settings,
        home: &Home,
    ) -> anyhow::Result<Self> {
        let HostWish { listen, recorder, simulated } = *wish;
        let insecure = listen.insecure || settings.switch("security.insecure");
        let address = listen
            .listen
            .or_else(|| settings.get("host.listen"))
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let output_dir = recorder.output_dir.clone().or_else(|| settings.path("host.output_dir"));
        Ok(Self {
            listen: address,
            ports: ports(listen, settings),
            data_dir: data_dir(recorder.data_dir.as_deref(), simulated, settings, home)?,
            output_dir: absolute(&output_dir.unwrap_or_else(|| PathBuf::from(".")))?,
            settings: HostSettings {
                base_period: pick(recorder.base_freq, settings, "host.base_freq", Period::BASE),
                session_period: pick(
                    recorder.freq,
                    settings,
                    "profiling.default_frequency",
                    Period::SESSION,
                ),
                bandwidth: recorder.enable_bandwidth
                    || settings.switch("profiling.enable_bandwidth"),
                nvlink: recorder.enable_nvlink || settings.switch("profiling.enable_nvlink"),
            },
            retention: Retention {
                budget_bytes: recorder.budget.or_else(|| settings.bytes("store.budget")),
                keep: recorder
                    .keep
                    .or_else(|| settings.span("store.keep"))
                    .unwrap_or(Micros::from_secs(86_400)),
            },
            segments: segments(settings),
            simulated,
            insecure,
            legacy_from: legacy_from(listen, settings)?,
            access: access(settings, insecure && !address.is_loopback()),
            home: home.root().to_path_buf(),
        })
    }
}

/// The recording's directory: flag, `store.data_dir`, default.
pub(crate) fn data_dir(
    flag: Option<&Path>,
    simulated: bool,
    settings: &Settings,
    home: &Home,
) -> anyhow::Result<PathBuf> {
    let configured = || settings.path("store.data_dir").map(|path| own_directory(path, simulated));
    let path = flag.map(Path::to_path_buf).or_else(configured);
    absolute(&path.unwrap_or_else(|| home.data_dir(simulated)))
}

/// Simulated data never shares a directory with real data unless a flag names it.
fn own_directory(path: PathBuf, simulated: bool) -> PathBuf {
    if !simulated {
        return path;
    }
    let mut name = path.into_os_string();
    name.push("-sim");
    name.into()
}

pub(super) fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(path)
        .with_context(|| format!("cannot tell where `{}` is", path.display()))?;
    // `std::path::absolute` keeps the dot of the working directory.
    Ok(path.components().collect())
}

fn pick(flag: Option<Period>, settings: &Settings, key: &str, default: Period) -> Period {
    flag.or_else(|| settings.period(key)).unwrap_or(default)
}

fn segments(settings: &Settings) -> SegmentLimits {
    let SegmentLimits { bytes_max, age_max } = SegmentLimits::default();
    SegmentLimits {
        bytes_max: settings.bytes("store.segment_size").unwrap_or(bytes_max),
        age_max: settings.span("store.segment_age").unwrap_or(age_max),
    }
}

/// The main port first, each once, without those that are off.
fn ports(args: &ListenArgs, settings: &Settings) -> Vec<u16> {
    let main = args.port.unwrap_or_else(|| settings.main_port());
    let mut ports = vec![main];
    if !(args.single_port || settings.switch("host.single_port")) {
        for (flag, key) in
            [(args.http_port, "host.http_port"), (args.model_port, "host.model_port")]
        {
            let port = flag.or_else(|| settings.get(key)).unwrap_or(0);
            if port != 0 && !ports.contains(&port) {
                ports.push(port);
            }
        }
    }
    ports
}

fn legacy_from(args: &ListenArgs, settings: &Settings) -> anyhow::Result<Vec<Network>> {
    let words = match &args.legacy_from {
        Some(text) => text.split(',').map(|part| part.trim().to_owned()).collect(),
        None => settings.list("security.legacy_from"),
    };
    let networks: Result<Vec<Network>, _> = words.iter().map(|word| word.parse()).collect();
    networks.map_err(|error| Fault::invalid(format!("--legacy-from: {error}")).into())
}

fn access(settings: &Settings, insecure: bool) -> AccessConfig {
    let limits = Limits::default();
    let count = |key: &str, usual: usize| settings.get(key).unwrap_or(usual);
    let bytes = |key: &str, usual: usize| {
        settings.bytes(key).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usual)
    };
    let time = |key: &str, usual: Duration| {
        let span = settings.span(key).and_then(|span| u64::try_from(span.0).ok());
        span.map_or(usual, Duration::from_micros)
    };
    let mut allowed_hosts = settings.list("http.allowed_hosts");
    let hostname = crate::paths::hostname();
    let short = hostname.split('.').next().unwrap_or_default().to_owned();
    allowed_hosts.extend([hostname, short]);
    AccessConfig {
        insecure,
        allowed_hosts,
        cors_origins: settings.list("http.cors_origins"),
        local_token: None,
        certificate_life: settings
            .span("security.certificate_life")
            .unwrap_or_else(|| AccessConfig::default().certificate_life),
        limits: Limits {
            body_bytes: bytes("http.body_size", limits.body_bytes),
            header_bytes: bytes("http.header_size", limits.header_bytes),
            json_depth: count("http.json_depth", limits.json_depth),
            connections: count("http.connections", limits.connections),
            connections_per_address: count(
                "http.connections_per_address",
                limits.connections_per_address,
            ),
            requests_per_second: settings
                .get("http.requests_per_second")
                .unwrap_or(limits.requests_per_second),
            failures_per_minute: settings
                .get("http.failures_per_minute")
                .unwrap_or(limits.failures_per_minute),
            header_time: time("http.header_time", limits.header_time),
            answer_time: time("http.answer_time", limits.answer_time),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn plan(listen: &ListenArgs, environment: &Environment) -> anyhow::Result<HostPlan> {
        let home = Home::find(environment);
        let settings = Settings::load(environment, home.root(), None).unwrap();
        let recorder = RecorderArgs::default();
        HostPlan::new(&HostWish { listen, recorder: &recorder, simulated: false }, &settings, &home)
    }

    #[track_caller]
    fn check_ports(listen: &ListenArgs, variables: &Environment, expected: &[u16]) {
        assert_eq!(plan(listen, variables).unwrap().ports, expected);
    }

    #[test]
    fn ports_once_and_the_main_one_first() {
        let home = Environment::from([("GSWARM_HOME", "/nowhere")]);
        let listen = ListenArgs::default;
        check_ports(&listen(), &home, &[8090, 8091, 9010]);
        check_ports(&ListenArgs { http_port: Some(0), ..listen() }, &home, &[8090, 9010]);
        check_ports(&ListenArgs { http_port: Some(8090), ..listen() }, &home, &[8090, 9010]);
        check_ports(&ListenArgs { single_port: true, ..listen() }, &home, &[8090]);
        check_ports(&ListenArgs { port: Some(0), single_port: true, ..listen() }, &home, &[0]);
        let moved =
            Environment::from([("GSWARM_HOME", "/nowhere"), ("GSWARM_CLUSTER__PORT", "7000")]);
        check_ports(&listen(), &moved, &[7000, 8091, 9010]);
    }

    #[test]
    fn who_listens_to_others_speaks_tls_unless_told_otherwise() {
        let home = Environment::from([("GSWARM_HOME", "/nowhere")]);
        let open = ListenArgs { listen: Some([0, 0, 0, 0].into()), ..ListenArgs::default() };
        assert!(plan(&open, &home).unwrap().is_encrypted());
        let insecure = plan(&ListenArgs { insecure: true, ..open.clone() }, &home).unwrap();
        assert!(insecure.access.insecure && !insecure.is_encrypted());
        let own = plan(&ListenArgs { insecure: true, ..ListenArgs::default() }, &home).unwrap();
        assert!(!own.access.insecure && !own.is_encrypted());
        let old = |text: &str| ListenArgs { legacy_from: Some(text.to_owned()), ..open.clone() };
        assert_eq!(plan(&old("10.0.0.0/8, fd00::/8"), &home).unwrap().legacy_from.len(), 2);
        let refused = plan(&old("10.0.0.0/40"), &home).unwrap_err().to_string();
        assert!(refused.contains("10.0.0.0/40"), "{refused}");
    }

    #[test]
    fn simulated_data_has_its_own_directory() {
        let variables = [("GSWARM_HOME", "/h"), ("GSWARM_STORE__DATA_DIR", "/d")];
        let environment = Environment::from(variables);
        let home = Home::find(&environment);
        let settings = Settings::load(&environment, home.root(), None).unwrap();
        let dir = |flag: Option<&str>, simulated| {
            data_dir(flag.map(Path::new), simulated, &settings, &home).unwrap()
        };
        assert_eq!(dir(None, false), Path::new("/d"));
        assert_eq!(dir(None, true), Path::new("/d-sim"));
        assert_eq!(dir(Some("/f"), true), Path::new("/f"));
    }
}
