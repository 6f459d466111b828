//! Whether a GPU answers, and what is said when that changes.

use gswarm_types::{EventKind, Severity};

/// How one tick went for one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// Not within the deadline.
    Late,
    /// The driver says that it is gone.
    Lost,
}

/// What the ticks so far amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    #[default]
    Answering,
    Unresponsive,
    Lost,
}

/// A change that is worth an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: EventKind,
    pub(super) severity: Severity,
    pub(super) message: &'static str,
}

impl Health {
    /// Takes in one tick; each change is reported once.
    pub(super) fn observe(&mut self, outcome: Outcome) -> Option<Change> {
        let (next, change) = match (*self, outcome) {
            (Self::Answering, Outcome::Answered)
            | (Self::Unresponsive, Outcome::Late)
            // A call that hangs on a lost GPU tells nothing new.
            | (Self::Lost, Outcome::Lost | Outcome::Late) => return None,
            (Self::Answering, Outcome::Late) => (
                Self::Unresponsive,
                Change {
                    kind: EventKind::GpuUnresponsive,
                    severity: Severity::Error,
                    message: "the driver does not answer for this GPU within the deadline",
                },
            ),
            (Self::Answering | Self::Unresponsive, Outcome::Lost) => (
                Self::Lost,
                Change {
                    kind: EventKind::GpuLost,
                    severity: Severity::Error,
                    message: "the driver lost this GPU",
                },
            ),
            (Self::Unresponsive, Outcome::Answered) => (
                Self::Answering,
                Change {
                    kind: EventKind::GpuResponsive,
                    severity: Severity::Info,
                    message: "the driver answers for this GPU again",
                },
            ),
            (Self::Lost, Outcome::Answered) => (
                Self::Answering,
                Change {
                    kind: EventKind::GpuFound,
                    severity: Severity::Info,
                    message: "the driver found this GPU again",
                },
            ),
        };
        *self = next;
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a`nswered, l`ate`, `x` lost; the events of each tick by their word, `-` for none.
    #[track_caller]
    fn check(ticks: &str, expected: &str) {
        let mut health = Health::default();
        let events: Vec<String> = ticks
            .chars()
            .map(|tick| match tick {
                'a' => Outcome::Answered,
                'l' => Outcome::Late,
                _ => Outcome::Lost,
            })
            .map(|outcome| {
                health
                    .observe(outcome)
                    .map_or_else(|| "-".to_owned(), |c| c.kind.as_str().to_owned())
            })
            .collect();
        assert_eq!(events.join(" "), expected);
    }

    #[test]
    fn each_change_is_said_once() {
        check("aa", "- -");
        check("allaa", "- gpu_unresponsive - gpu_responsive -");
        check("axxla", "- gpu_lost - - gpu_found");
        check("lx", "gpu_unresponsive gpu_lost");
    }
}
