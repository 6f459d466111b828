//! Which commands of the host this node carries out.

use gswarm_types::{Allow, AllowSet, Period};
use gswarm_wire::v1::command::Command;

/// A command that may be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permitted {
    SetPeriod(Period),
}

/// Why a command is not carried out; `kind` is one of the nine error kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// Checks a command against what the node permits.
pub(crate) fn check(command: Option<&Command>, allow: &AllowSet) -> Result<Permitted, Refusal> {
    match command {
        Some(Command::SetPeriod(set)) => {
            require(Allow::Observe, allow)?;
            Period::from_millis(i64::from(set.period_ms))
                .map(Permitted::SetPeriod)
                .map_err(|error| Refusal { kind: "invalid_argument", message: error.to_string() })
        },
        Some(Command::Unknown(name)) => {
            let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            Err(unknown(format!("this agent does not know the command `{name}`")))
        },
        None => Err(unknown("this agent does not know the command".to_owned())),
    }
}

fn require(needed: Allow, allow: &AllowSet) -> Result<(), Refusal> {
    if allow.contains(needed) {
        return Ok(());
    }
    let message = format!(
        "this node allows {allow}; start its agent with `--allow {}` to permit it",
        needed.as_str()
    );
    Err(Refusal { kind: "failed_precondition", message })
}

fn unknown(message: String) -> Refusal {
    Refusal { kind: "failed_precondition", message }
}

#[cfg(test)]
mod tests {
    use gswarm_wire::v1::SetPeriod;

    use super::*;

    #[track_caller]
    fn check_kind(command: Option<Command>, expected: Result<i64, &str>) {
        let got = check(command.as_ref(), &AllowSet::default())
            .map(|Permitted::SetPeriod(period)| period.millis())
            .map_err(|refusal| refusal.kind);
        assert_eq!(got, expected);
    }

    #[test]
    fn only_what_is_known_and_allowed() {
        let period = |period_ms| Some(Command::SetPeriod(SetPeriod { period_ms }));
        check_kind(period(500), Ok(500));
        check_kind(period(99), Err("invalid_argument"));
        check_kind(period(0), Err("invalid_argument"));
        check_kind(Some(Command::Unknown("format_disk".to_owned())), Err("failed_precondition"));
        check_kind(None, Err("failed_precondition"));
    }

    #[test]
    fn what_the_node_does_not_permit_is_refused_with_the_way_out() {
        let refusal = require(Allow::Run, &AllowSet::default()).unwrap_err();
        assert_eq!(refusal.kind, "failed_precondition");
        assert!(refusal.message.contains("--allow run"), "{}", refusal.message);
    }
}
