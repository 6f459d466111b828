//! `gswarm doctor`: what is wrong on this machine, with a fix for each finding.

mod driver;
mod machine;
mod place;
mod rights;

use std::path::PathBuf;
use std::process::ExitCode;

use gswarm_api::ErrorCode;
use serde::Serialize;

use super::Context;
use crate::args::DoctorArgs;
use crate::output::{Page, Table, Tone, clean};
use crate::plan::agent::{node_name, nvml_library};
use crate::plan::host::data_dir;

/// Everything that was looked at.
#[derive(Debug, Serialize)]
struct DoctorBody {
    version: &'static str,
    findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    area: &'static str,
    level: Level,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warning,
    Error,
}

impl Finding {
    fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { area, level: Level::Ok, message: message.into(), fix: None }
    }

    fn warning(area: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { area, level: Level::Warning, message: message.into(), fix: Some(fix.into()) }
    }

    fn error(area: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::warning(area, message, fix) }
    }
}

/// Exit code 7 when a finding is an error.
pub(super) async fn doctor(context: &Context, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = configuration(context);
    let library = nvml_library(args.nvml_library.clone(), &context.settings);
    findings.extend(driver::findings(library.as_deref()));
    findings.extend(machine::ports(&context.settings).await);
    findings.extend(machine::clock());
    findings.extend(machine::open_files());
    findings.extend(rights::findings());
    for (area, path) in places(context, args)? {
        findings.extend(place::findings(area, &path));
    }
    let body = DoctorBody { version: env!("CARGO_PKG_VERSION"), findings };
    context.output.show(&body, page)?;
    let failed = body.findings.iter().any(|finding| finding.level == Level::Error);
    let code = if failed { ErrorCode::FailedPrecondition.exit_code() } else { 0 };
    Ok(ExitCode::from(code))
}

/// The directories in use, by the word that names them.
fn places(context: &Context, args: &DoctorArgs) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let Context { settings, home, .. } = context;
    let state = match args.state_dir.clone().or_else(|| settings.path("agent.state_dir")) {
        Some(path) => path,
        None => home.agent_state(&node_name(None, settings)?, false).path,
    };
    Ok(vec![
        ("data", data_dir(args.data_dir.as_deref(), false, settings, home)?),
        ("state", state),
        ("log", settings.path("log.dir").unwrap_or_else(|| home.logs())),
        ("output", settings.path("host.output_dir").unwrap_or_else(|| PathBuf::from("."))),
    ])
}

fn configuration(context: &Context) -> Vec<Finding> {
    let fix = "`gswarm config check` shows everything that is wrong";
    if let Some(error) = &context.unreadable {
        return vec![Finding::error("config", clean(&format!("{error:#}")), fix)];
    }
    let problems = context.settings.problems.iter().map(|problem| {
        let level = if problem.harmless { Level::Warning } else { Level::Error };
        Finding { level, ..Finding::warning("config", problem.to_string(), fix) }
    });
    let files: Vec<String> =
        context.settings.files.iter().map(|file| file.display().to_string()).collect();
    let read = if files.is_empty() {
        "no file, defaults and environment are in force".to_owned()
    } else {
        files.join(", ")
    };
    std::iter::once(Finding::ok("config", read)).chain(problems).collect()
}

fn page(body: &DoctorBody) -> Page {
    let mut table = Table::new(["", "AREA", "FINDING"]);
    for finding in &body.findings {
        table.row([level_cell(finding.level), finding.area.to_owned(), finding.message.clone()]);
        if let Some(fix) = &finding.fix {
            table.row([String::new(), String::new(), format!("  fix: {fix}")]);
        }
    }
    let count = |level| body.findings.iter().filter(|finding| finding.level == level).count();
    let summary = match (count(Level::Error), count(Level::Warning)) {
        (0, 0) => "everything is fine".to_owned(),
        (errors, warnings) => format!("errors: {errors}, warnings: {warnings}"),
    };
    Page::default().line(format!("gswarm {}", body.version)).table(table).blank().line(summary)
}

fn level_cell(level: Level) -> String {
    match level {
        Level::Ok => Tone::Good.paint("ok"),
        Level::Warning => Tone::Warning.paint("warning"),
        Level::Error => Tone::Bad.paint("ERROR"),
    }
}
