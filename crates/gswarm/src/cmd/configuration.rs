//! `gswarm config check|show`.

use std::path::PathBuf;
use std::process::ExitCode;

use gswarm_api::ErrorCode;
use serde::Serialize;

use super::Context;
use crate::config::{KEYS, Kind};
use crate::fault::Fault;
use crate::output::{Page, Table, Tone, remark};

#[derive(Debug, Serialize)]
struct CheckBody {
    readable: bool,
    files: Vec<PathBuf>,
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ShowBody {
    /// The host that commands talk to.
    target: String,
    values: Vec<ShownValue>,
}

#[derive(Debug, Serialize)]
struct ShownValue {
    key: &'static str,
    variable: String,
    value: Option<String>,
    from: Option<String>,
}

/// Exit code 2 when something is wrong, 0 otherwise.
pub(super) fn check(context: &Context) -> anyhow::Result<ExitCode> {
    let unreadable = context.unreadable.as_ref().map(|error| format!("{error:#}"));
    let problems = context.settings.problems.iter().map(ToString::to_string);
    let body = CheckBody {
        readable: unreadable.is_none(),
        files: context.settings.files.clone(),
        problems: unreadable.into_iter().chain(problems).collect(),
    };
    context.output.show(&body, check_page)?;
    if body.problems.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::from(ErrorCode::InvalidArgument.exit_code()))
    }
}

pub(super) fn show(context: &Context) -> anyhow::Result<()> {
    if let Some(error) = &context.unreadable {
        return Err(Fault::invalid(format!("{error:#}")).into());
    }
    for problem in &context.settings.problems {
        remark(&format!("warning: {problem}"));
    }
    let values = KEYS
        .iter()
        .map(|key| {
            let setting = context.settings.setting(key.path);
            ShownValue {
                key: key.path,
                variable: key.variable(),
                value: setting.map(|setting| match key.kind {
                    Kind::Secret => "(set, not shown)".to_owned(),
                    _ => setting.text.clone(),
                }),
                from: setting.map(|setting| setting.origin.to_string()),
            }
        })
        .collect();
    let target = context.target()?.to_string();
    context.output.show(&ShowBody { target, values }, |body| {
        let mut table = Table::new(["KEY", "VALUE", "FROM"]);
        for value in &body.values {
            table.row([
                value.key.to_owned(),
                value.value.clone().unwrap_or_else(|| Tone::Quiet.paint("not set")),
                value.from.clone().unwrap_or_default(),
            ]);
        }
        Page::default().table(table).blank().line(format!("commands talk to {}", body.target))
    })
}

fn check_page(body: &CheckBody) -> Page {
    let page = match body.files.as_slice() {
        [] if !body.readable => Page::default(),
        [] => Page::default().line("no configuration file; defaults and environment are in force"),
        files => files
            .iter()
            .fold(Page::default(), |page, file| page.line(format!("read {}", file.display()))),
    };
    match body.problems.as_slice() {
        [] => page.line("everything is fine"),
        problems => {
            problems.iter().fold(page, |page, problem| page.line(format!("wrong: {problem}")))
        },
    }
}
