//! From any error to one sentence, a hint and an exit code.

use std::fmt;
use std::io;

use gswarm_api::timestamp::TimeError;
use gswarm_api::{ClientError, ErrorCode, Failure, Target, TargetError};
use gswarm_device::SpecError;
use gswarm_types::{JobIdError, NameError, ParseIdError, PeriodError, UnknownAllow};

use crate::output::clean;

/// A failure of the command itself, with what to do about it.
#[derive(Debug)]
pub(crate) struct Fault {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
}

/// What the edge prints and returns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) text: String,
    pub(crate) exit_code: u8,
}

impl Fault {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    pub(crate) fn not_now(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedPrecondition, message)
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// One line for the error with its causes, one for the hint. `None` when the reader of our output
/// went away, which is no failure.
pub(crate) fn judge(error: &anyhow::Error) -> Option<Verdict> {
    if error.chain().any(is_broken_pipe) {
        return None;
    }
    let mut text = format!("error: {}", clean(&sentence(error)));
    // A fault that stands as context of another error is no link of the chain by itself.
    let fault = error.downcast_ref::<Fault>();
    let hint = fault.and_then(|fault| fault.hint.clone());
    let hint = hint.or_else(|| error.chain().find_map(hint_of));
    // What a host said may hold the hint already.
    if let Some(hint) = hint.filter(|hint| !text.contains(hint.as_str())) {
        text.push_str("\nhint: ");
        text.push_str(&clean(&hint));
    }
    let code = fault.map(|fault| fault.code).or_else(|| error.chain().find_map(code_of));
    let code = code.unwrap_or(ErrorCode::Internal);
    Some(Verdict { text, exit_code: code.exit_code() })
}

/// The messages of the chain, each said once.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = error.to_string();
    let unreachable = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(ClientError::Unreachable { .. } | ClientError::Broken { .. })
        )
    });
    let causes: Vec<String> = error.chain().skip(1).map(plain).collect();
    // The layers of the HTTP client say nothing that the innermost cause does not.
    let first = if unreachable { causes.len().saturating_sub(1) } else { 0 };
    for cause in causes.iter().skip(first) {
        if !sentence.contains(cause.as_str()) {
            sentence.push_str(": ");
            sentence.push_str(cause);
        }
    }
    sentence
}

/// A cause without the number that the system gives it.
fn plain(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    if let Some(fault) = cause.downcast_ref::<Fault>() {
        return Some(fault.code);
    }
    if let Some(error) = cause.downcast_ref::<ClientError>() {
        return Some(error.code());
    }
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.code);
    }
    if is_bad_input(cause) {
        return Some(ErrorCode::InvalidArgument);
    }
    match cause.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::PermissionDenied => Some(ErrorCode::PermissionDenied),
        io::ErrorKind::NotFound => Some(ErrorCode::NotFound),
        io::ErrorKind::AddrInUse | io::ErrorKind::AlreadyExists => Some(ErrorCode::Conflict),
        io::ErrorKind::StorageFull => Some(ErrorCode::ResourceExhausted),
        _ => None,
    }
}

fn is_bad_input(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<NameError>()
        || cause.is::<JobIdError>()
        || cause.is::<PeriodError>()
        || cause.is::<TimeError>()
        || cause.is::<TargetError>()
        || cause.is::<SpecError>()
        || cause.is::<ParseIdError>()
        || cause.is::<UnknownAllow>()
}

fn hint_of(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(fault) = cause.downcast_ref::<Fault>() {
        return fault.hint.clone();
    }
    match cause.downcast_ref::<ClientError>()? {
        ClientError::Unreachable { target, .. } => Some(unreachable_hint(target)),
        ClientError::Broken { target, .. } => Some(format!(
            "the host may have stopped; see `gswarm status --host {target}` and its log"
        )),
        ClientError::Answer { target, .. } => Some(format!(
            "something else may listen at {target}, or the host has another version; \
             `gswarm doctor` shows who owns the local ports"
        )),
        ClientError::Stranger { target, .. } => Some(format!(
            "`gswarm token create --role viewer` on the host makes a token, `gswarm login {target}` \
             takes it"
        )),
        ClientError::Refused { reason, .. } => match reason.as_deref()? {
            "SESSION_NOT_FOUND" => Some("`gswarm profiler sessions` lists them".to_owned()),
            "NODE_NOT_FOUND" => Some("`gswarm nodes` lists them".to_owned()),
            _ => None,
        },
    }
}

fn unreachable_hint(target: &Target) -> String {
    if target.is_loopback() {
        "start one with `gswarm host start` (`gswarm up` for host and agent), or name another \
         with --host ADDR or GSWARM_HOST"
            .to_owned()
    } else {
        format!(
            "a host listens on its own machine only until told otherwise: on {} run `gswarm host \
             start --listen 0.0.0.0`, and check name, network and firewall",
            target.host()
        )
    }
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[track_caller]
    fn check(error: impl Into<anyhow::Error>, text: &str, exit_code: u8) {
        let verdict = judge(&error.into());
        assert_eq!(verdict, Some(Verdict { text: text.to_owned(), exit_code }));
    }

    #[test]
    fn errors_become_a_sentence_a_hint_and_a_code() {
        check(
            Fault::conflict("`a.json` exists").hint("pass --force"),
            "error: `a.json` exists\nhint: pass --force",
            6,
        );
        check(
            anyhow::Error::from(io::Error::from(io::ErrorKind::PermissionDenied))
                .context("cannot write `/x`"),
            "error: cannot write `/x`: permission denied",
            4,
        );
        check(
            anyhow::anyhow!("line 1")
                .context(Fault::invalid("`x` is no configuration").hint("fix it")),
            "error: `x` is no configuration: line 1\nhint: fix it",
            2,
        );
        check(anyhow::anyhow!("odd\x1b[31m"), "error: odd\\u{1b}[31m", 1);
        check(
            "a b".parse::<Target>().unwrap_err(),
            "error: `a b` is not an address: write HOST, HOST:PORT or http://HOST:PORT",
            2,
        );
    }

    #[test]
    fn a_connection_is_explained_by_its_innermost_cause() {
        let source = io::Error::from(io::ErrorKind::ConnectionRefused);
        let source =
            anyhow::Error::from(source).context("tcp connect error").context("client error");
        let target = Target::new("gpu-head", 8090);
        let error = ClientError::Unreachable { target, source: source.into() };
        let verdict = judge(&error.into()).unwrap();
        assert!(verdict.text.starts_with(
            "error: no gswarm host answers at gpu-head:8090: connection refused\nhint: a host"
        ));
        assert_eq!(verdict.exit_code, 9);
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let gone: Result<(), io::Error> = Err(io::ErrorKind::BrokenPipe.into());
        assert_eq!(judge(&gone.context("cannot write").unwrap_err()), None);
    }
}
