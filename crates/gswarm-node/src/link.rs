//! The connection to the host: dials, delivers, comes back.

mod backoff;
mod greet;
mod stream;
mod window;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use gswarm_types::{AllowSet, Clock, Micros, NodeId, NodeName, Period};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::backoff::Backoff;
use crate::connect::{Connect, NotReady, Who};
use crate::spool::{SharedSpool, Times};
use crate::status::{AgentStatus, LinkState};

/// How soon a node that waits for approval asks again.
const PENDING_WAIT: Duration = Duration::from_secs(5);

/// What the agent says of itself in every stream.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    pub(crate) node_id: NodeId,
    pub(crate) node_name: NodeName,
    pub(crate) hostname: String,
    pub(crate) version: String,
    pub(crate) boot_id: String,
    pub(crate) allow: AllowSet,
    pub(crate) simulated: bool,
    /// The node's own base rate; the host's when `None`.
    pub(crate) base_period: Option<Period>,
}

/// The task that delivers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) introduction: Introduction,
    pub(crate) resilient: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) connect: Arc<dyn Connect>,
    pub(crate) spool: SharedSpool,
    pub(crate) period: watch::Sender<Period>,
    pub(crate) status: Arc<watch::Sender<AgentStatus>>,
    /// When the tick began that is not in the spool yet.
    pub(crate) ticking: watch::Receiver<Option<Micros>>,
    /// Says why the link is over, once it is.
    pub(crate) finished: watch::Sender<Option<String>>,
    pub(crate) random: StdRng,
}

/// Why a stream is over.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    Lost(String),
    /// Another agent uses this identity; the host says which.
    Conflict(String),
    Refused(String),
    /// Somebody has to let this node in first.
    Pending(String),
    /// Something was put right, and the next try goes better: a new incarnation where the host means
    /// other records by this one's seqs, a new certificate where it does not want the old one.
    Renewed,
}

/// How a stream went.
#[derive(Debug)]
struct Course {
    acked: bool,
    ended: Ended,
}

impl Link {
    /// Delivers until told to stop, or until the connection is lost if it is not resilient.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut backoff = Backoff::new(StdRng::from_rng(&mut self.random));
        loop {
            self.show(LinkState::Connecting { attempt: backoff.attempt(), retry_in: None });
            let who = self.who();
            let connect = Arc::clone(&self.connect);
            let course = tokio::select! {
                () = stop.cancelled() => return,
                course = Box::pin(self.stream()) => course,
                () = Self::stay_ready(connect, who) => return,
            };
            if course.acked {
                backoff.reset();
            }
            let Some(wait) = self.judge(course.ended, &mut backoff) else { return };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {},
            }
        }
    }

    /// How long to wait before the next stream; `None` when there is none.
    fn judge(&mut self, ended: Ended, backoff: &mut Backoff) -> Option<Duration> {
        let (reason, wait, state) = match ended {
            Ended::Renewed => return Some(Duration::ZERO),
            Ended::Lost(reason) => {
                let wait = backoff.next();
                let attempt = backoff.attempt();
                (reason, wait, LinkState::Connecting { attempt, retry_in: Some(wait) })
            },
            Ended::Conflict(reason) => {
                (reason.clone(), backoff.next(), LinkState::Waiting { reason })
            },
            Ended::Pending(reason) => (reason.clone(), PENDING_WAIT, LinkState::Waiting { reason }),
            Ended::Refused(reason) => {
                (reason.clone(), backoff.longest(), LinkState::Refused { reason })
            },
        };
        tracing::warn!(host = self.connect.describe(), reason, "not connected");
        self.show(state);
        let resilient = self.resilient;
        self.status.send_modify(|status| status.last_error = Some(reason.clone()));
        if !resilient {
            self.finished.send_replace(Some(reason));
            return None;
        }
        Some(wait)
    }

    /// Keeps the certificate fresh while a stream lasts; never returns.
    async fn stay_ready(connect: Arc<dyn Connect>, who: Who) {
        // Asked anew each time: a certificate that came meanwhile has a life of its own.
        while let Some(every) = connect.prepare_every() {
            tokio::time::sleep(every).await;
            if let Err(reason) = connect.prepare(&who).await {
                tracing::warn!(?reason, "the certificate could not be renewed");
            }
        }
        std::future::pending().await
    }

    async fn stream(&mut self) -> Course {
        match self.greet().await {
            Ok((ends, greeting)) => self.deliver(ends, greeting).await,
            Err(ended) => Course { acked: false, ended },
        }
    }

    /// The host stored something else under a seq of ours: records from now on get a new name.
    async fn renew(&mut self) -> Ended {
        let incarnation = new_incarnation(&mut self.random);
        tracing::warn!(%incarnation, "the host's records differ from ours: new incarnation");
        match self.spool.run(move |spool| spool.renew(incarnation)).await {
            Ok(()) => Ended::Renewed,
            Err(error) => Ended::Lost(error.to_string()),
        }
    }

    fn who(&self) -> Who {
        let me = &self.introduction;
        Who { node: me.node_id, name: me.node_name.clone() }
    }

    fn now(&self) -> Times {
        Times { mono: self.clock.mono(), wall: self.clock.wall() }
    }

    fn show(&self, link: LinkState) {
        self.status.send_modify(|status| status.link = link);
    }

    fn set_period(&self, period: Period) {
        self.period.send_if_modified(|old| {
            let changed = *old != period;
            *old = period;
            changed
        });
        self.status.send_modify(|status| status.period = period);
    }
}

/// Never 0, which JSON readers take for nothing.
pub(crate) fn new_incarnation(random: &mut StdRng) -> gswarm_types::Incarnation {
    gswarm_types::Incarnation(random.random_range(1..=u64::MAX))
}

impl From<NotReady> for Ended {
    fn from(reason: NotReady) -> Self {
        match reason {
            NotReady::Lost(reason) => Self::Lost(reason),
            NotReady::Pending(reason) => Self::Pending(reason),
            NotReady::Refused(reason) => Self::Refused(reason),
        }
    }
}

/// What an answer of the host means for the link.
fn ended_by(status: &Status) -> Ended {
    let reason = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    match status.code() {
        Code::AlreadyExists => Ended::Conflict(reason),
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::Unimplemented => Ended::Refused(reason),
        _ => Ended::Lost(match status.source() {
            Some(source) => format!("{reason}: {}", chain(source)),
            None => reason,
        }),
    }
}

/// The error and its causes in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
