//! NVIDIA driver, library and GPUs.

use std::path::Path;

use gswarm_device::nvml::{self, InspectedGpu, Inspection};

use super::Finding;
use crate::units;

pub(super) fn findings(library: Option<&Path>) -> Vec<Finding> {
    let on_bus = nvml::gpus_on_pci_bus(Path::new("/sys"));
    judge(&nvml::inspect(library), &on_bus)
}

fn judge(inspection: &Inspection, on_bus: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(library) = &inspection.library {
        let part = |name: &str, version: Option<&String>| {
            version.map(|version| format!(", {name} {version}")).unwrap_or_default()
        };
        findings.push(Finding::ok(
            "driver",
            format!(
                "{}{}{}{}",
                library.display(),
                part("driver", inspection.driver_version.as_ref()),
                part("NVML", inspection.nvml_version.as_ref()),
                part("CUDA", inspection.cuda_version.as_ref()),
            ),
        ));
    }
    findings.extend(inspection.gpus.iter().map(gpu));
    match (&inspection.problem, on_bus) {
        // No GPU and no driver is a fine machine.
        (Some(_), []) => findings.push(Finding::ok("gpu", "no NVIDIA GPU and no driver for one")),
        (Some(problem), gpus) => findings.push(Finding::error(
            "gpu",
            format!("{}; GPUs on the PCI bus: {}", problem.message, gpus.join(", ")),
            problem.fix.clone(),
        )),
        (None, []) if inspection.gpus.is_empty() => {
            findings.push(Finding::ok("gpu", "no NVIDIA GPU on this machine"));
        },
        (None, gpus) if gpus.len() > inspection.gpus.len() => findings.push(Finding::warning(
            "gpu",
            format!(
                "{} on the PCI bus, {} with the driver",
                units::count(u64::try_from(gpus.len()).unwrap_or(u64::MAX), "GPU"),
                inspection.gpus.len()
            ),
            "`dmesg | grep -i nvrm` says why the driver left some out",
        )),
        (None, _) => {},
    }
    findings
}

fn gpu(gpu: &InspectedGpu) -> Finding {
    let name = gpu.name.as_deref().unwrap_or("unknown GPU");
    let pci = gpu.pci.as_deref().map(|pci| format!(" at {pci}")).unwrap_or_default();
    let activity = match gpu.gpm {
        Some(true) => ", SM and tensor activity readable",
        Some(false) => ", no SM and tensor activity (needs Hopper or later)",
        None => "",
    };
    let message = format!("{}: {name}{pci}{activity}", gpu.index);
    match &gpu.problem {
        None => Finding::ok("gpu", message),
        Some(problem) => {
            Finding::error("gpu", format!("{message}: {}", problem.message), problem.fix.clone())
        },
    }
}

#[cfg(test)]
mod tests {
    use gswarm_device::nvml::Problem;

    use super::super::Level;
    use super::*;

    fn problem() -> Option<Problem> {
        Some(Problem { message: "no library".to_owned(), fix: "install the driver".to_owned() })
    }

    #[track_caller]
    fn check(inspection: &Inspection, on_bus: &[&str], expected: &[(Level, &str)]) {
        let on_bus: Vec<String> = on_bus.iter().map(|&pci| pci.to_owned()).collect();
        let findings = judge(inspection, &on_bus);
        let got: Vec<(Level, &str)> =
            findings.iter().map(|finding| (finding.level, finding.message.as_str())).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn only_a_gpu_without_a_driver_is_an_error() {
        let nothing = Inspection { problem: problem(), ..Inspection::default() };
        check(&nothing, &[], &[(Level::Ok, "no NVIDIA GPU and no driver for one")]);
        check(
            &nothing,
            &["0000:01:00.0"],
            &[(Level::Error, "no library; GPUs on the PCI bus: 0000:01:00.0")],
        );
    }

    #[test]
    fn gpus_that_the_driver_left_out_are_counted() {
        let one = Inspection {
            gpus: vec![InspectedGpu {
                name: Some("H200".to_owned()),
                gpm: Some(true),
                ..InspectedGpu::default()
            }],
            ..Inspection::default()
        };
        check(
            &one,
            &["a", "b"],
            &[
                (Level::Ok, "0: H200, SM and tensor activity readable"),
                (Level::Warning, "2 GPUs on the PCI bus, 1 with the driver"),
            ],
        );
    }
}
