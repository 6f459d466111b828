//! The book of sessions: who may start, what a name means, which rate a node needs.

use std::collections::BTreeMap;

use gswarm_types::{
    Micros, NodeId, Period, Selection, SessionId, SessionName, SessionSpec, SessionState,
};
use serde::Serialize;

/// Why the book refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    #[error("no session is called `{0}`: `gswarm profiler sessions` lists them")]
    Unknown(String),
    #[error("a session `{0}` is already running: stop it first or choose another name")]
    Running(SessionName),
    #[error("a session cannot end before it begins")]
    Backwards,
    #[error("at most {0} sessions can be open at once: stop some first")]
    TooMany(usize),
    #[error("this request id made the session `{0}`, which is of another kind: use a new id")]
    OtherRequest(SessionName),
}

/// What was recorded so shortly before a session belongs to it: who held a GPU when it began.
pub const PIN_LEAD: Micros = Micros::from_secs(30);
/// Sessions that may be open at the same time.
const OPEN_MAX: usize = 1_000;

/// What a new session is made of.
#[derive(Debug, Clone)]
pub struct StartPlan {
    pub id: SessionId,
    pub name: SessionName,
    pub from: Micros,
    /// `Some` for a capture, which is over from the start.
    pub until: Option<Micros>,
    /// Retention took everything before this.
    pub expired_until: Option<Micros>,
    pub stop_at: Option<Micros>,
    pub period: Period,
    pub selection: Selection,
    pub bandwidth: bool,
    pub nvlink: bool,
    pub extra_metrics: Vec<String>,
    pub owner: String,
    pub tags: Vec<String>,
    pub note: Option<String>,
    pub request_id: Option<String>,
}

/// Every session that has a file.
#[derive(Debug, Clone, Default)]
pub struct SessionBook {
    sessions: BTreeMap<SessionId, SessionSpec>,
}

impl SessionBook {
    /// Takes a session over from disk.
    pub fn restore(&mut self, spec: SessionSpec) {
        self.sessions.insert(spec.id, spec);
    }

    /// The session as it would stand; it counts once `put` is called, after it is on disk.
    pub fn plan_start(&self, plan: StartPlan, now: Micros) -> Result<SessionSpec, SessionError> {
        if let Some(request) = &plan.request_id
            && let Some(same) = self.by_request(request)
        {
            // A capture ends before it is made, anything else after.
            let was_capture = same.until.is_some_and(|until| until <= same.created);
            if was_capture != plan.until.is_some() {
                return Err(SessionError::OtherRequest(same.name.clone()));
            }
            return Ok(same.clone());
        }
        if plan.until.is_none() && self.open().any(|open| open.name == plan.name) {
            return Err(SessionError::Running(plan.name));
        }
        if self.open().count() >= OPEN_MAX {
            return Err(SessionError::TooMany(OPEN_MAX));
        }
        if plan.until.is_some_and(|until| until <= plan.from) {
            return Err(SessionError::Backwards);
        }
        let state = if plan.until.is_some() { SessionState::Stopped } else { SessionState::Active };
        Ok(SessionSpec {
            id: plan.id,
            name: plan.name,
            state,
            created: now,
            from: plan.from,
            until: plan.until,
            covered_from: plan.expired_until.filter(|expired| *expired > plan.from),
            stop_at: plan.stop_at,
            period: plan.period,
            selection: plan.selection,
            bandwidth: plan.bandwidth,
            nvlink: plan.nvlink,
            extra_metrics: plan.extra_metrics,
            owner: plan.owner,
            tags: plan.tags,
            note: plan.note,
            revision: 0,
            incomplete: Vec::new(),
            output_file: None,
            output_crc: None,
            request_id: plan.request_id,
            stop_request_id: None,
        })
    }

    /// What a stop that came before with the same request stopped.
    pub fn stopped_by(&self, request: &str) -> Vec<SessionId> {
        let same = |spec: &&SessionSpec| spec.stop_request_id.as_deref() == Some(request);
        self.sessions.values().filter(same).map(|spec| spec.id).collect()
    }

    fn by_request(&self, request: &str) -> Option<&SessionSpec> {
        self.sessions.values().find(|spec| spec.request_id.as_deref() == Some(request))
    }

    /// Stores a planned or changed session.
    pub fn put(&mut self, spec: SessionSpec) {
        self.sessions.insert(spec.id, spec);
    }

    /// Forgets a session; what only it kept may go.
    pub fn remove(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub fn get(&self, id: SessionId) -> Option<&SessionSpec> {
        self.sessions.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut SessionSpec> {
        self.sessions.get_mut(&id)
    }

    /// A name means the open session of that name or else the newest, an id any.
    pub fn find(&self, key: &str) -> Result<&SessionSpec, SessionError> {
        let by_id = key.parse().ok().and_then(|id: SessionId| self.sessions.get(&id));
        by_id
            .or_else(|| {
                self.sessions
                    .values()
                    .filter(|spec| spec.name.as_str() == key)
                    // After the clock was set back the open one may look older.
                    .max_by_key(|spec| (spec.state == SessionState::Active, spec.created, spec.id))
            })
            .ok_or_else(|| SessionError::Unknown(key.chars().take(160).collect()))
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &SessionSpec> {
        let mut all: Vec<&SessionSpec> = self.sessions.values().collect();
        all.sort_by_key(|spec| (spec.created, spec.id));
        all.into_iter()
    }

    pub fn open(&self) -> impl Iterator<Item = &SessionSpec> {
        self.sessions.values().filter(|spec| spec.state == SessionState::Active)
    }

    /// Open sessions whose time is up.
    pub fn due(&self, now: Micros) -> Vec<SessionId> {
        self.open()
            .filter(|spec| spec.stop_at.is_some_and(|at| at <= now))
            .map(|spec| spec.id)
            .collect()
    }

    /// The shortest period of the node's open sessions, else the base rate.
    pub fn period_of(&self, node: NodeId, base: Period) -> Period {
        self.open()
            .filter(|spec| spec.selection.has_node(node))
            .map(|spec| spec.period)
            .min()
            .unwrap_or(base)
    }

    /// What sessions keep of the time.
    pub fn pins(&self, first: Micros, last: Micros) -> Vec<Pin> {
        let touches = |spec: &&SessionSpec| {
            spec.from - PIN_LEAD <= last && spec.until.is_none_or(|until| until > first)
        };
        let pin = |spec: &SessionSpec| Pin {
            from: spec.from - PIN_LEAD,
            until: spec.until,
            nodes: spec.selection.nodes.clone(),
        };
        self.sessions.values().filter(touches).map(pin).collect()
    }
}

/// What one session keeps from retention: whole records, for a record holds all GPUs of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pin {
    from: Micros,
    until: Option<Micros>,
    nodes: Option<Vec<NodeId>>,
}

impl Pin {
    /// True when the session needs what happened then; `None` concerns every node.
    pub fn selects(&self, node: Option<NodeId>, time: Micros) -> bool {
        let has_node = |node| self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node));
        time >= self.from
            && self.until.is_none_or(|until| time < until)
            && node.is_none_or(has_node)
    }

    /// True when the session needs everything of the time.
    pub fn covers(&self, first: Micros, last: Micros) -> bool {
        self.nodes.is_none() && self.from <= first && self.until.is_none_or(|until| until > last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(number: u8, name: &str, period_ms: i64) -> StartPlan {
        StartPlan {
            id: format!("00000000-0000-7000-8000-0000000000{number:02}").parse().unwrap(),
            name: name.parse().unwrap(),
            from: Micros(0),
            until: None,
            expired_until: None,
            stop_at: None,
            period: Period::from_millis(period_ms).unwrap(),
            selection: Selection::default(),
            bandwidth: false,
            nvlink: false,
            extra_metrics: Vec::new(),
            owner: "local".to_owned(),
            tags: Vec::new(),
            note: None,
            request_id: None,
        }
    }

    fn start(book: &mut SessionBook, plan: StartPlan) -> Result<SessionSpec, SessionError> {
        let created = Micros(i64::try_from(book.iter().count()).unwrap());
        let spec = book.plan_start(plan, created)?;
        book.put(spec.clone());
        Ok(spec)
    }

    #[test]
    fn a_request_id_means_one_kind_of_request() {
        let mut book = SessionBook::default();
        let with = |number, name: &str, until: Option<i64>| StartPlan {
            request_id: Some("r".to_owned()),
            until: until.map(Micros),
            ..plan(number, name, 500)
        };
        let open = book.plan_start(with(1, "open", None), Micros(10)).unwrap();
        book.put(open.clone());
        // Repeated, it is the same session; as a capture it would end one that is open.
        assert_eq!(book.plan_start(with(2, "open", None), Micros(11)), Ok(open.clone()));
        let other = Err(SessionError::OtherRequest(open.name));
        assert_eq!(book.plan_start(with(3, "cut", Some(5)), Micros(12)), other);
        let mut book = SessionBook::default();
        let cut = book.plan_start(with(4, "cut", Some(5)), Micros(10)).unwrap();
        book.put(cut.clone());
        assert_eq!(book.plan_start(with(5, "cut", Some(5)), Micros(11)), Ok(cut.clone()));
        let other = Err(SessionError::OtherRequest(cut.name));
        assert_eq!(book.plan_start(with(6, "open", None), Micros(12)), other);
    }

    #[test]
    fn names_are_free_again_after_stop() {
        let mut book = SessionBook::default();
        let first = start(&mut book, plan(1, "run", 500)).unwrap();
        assert_eq!(
            start(&mut book, plan(2, "run", 500)),
            Err(SessionError::Running("run".parse().unwrap()))
        );
        book.get_mut(first.id).unwrap().state = SessionState::Stopped;
        let second = start(&mut book, plan(3, "run", 500)).unwrap();
        assert_eq!(book.find("run").unwrap().id, second.id, "a name means the newest");
        assert_eq!(book.find(&first.id.to_string()).unwrap().id, first.id);
        assert!(matches!(book.find("other"), Err(SessionError::Unknown(_))));
    }

    #[test]
    fn a_repeated_request_changes_nothing() {
        let mut book = SessionBook::default();
        let mut request = plan(1, "run", 500);
        request.request_id = Some("r1".to_owned());
        let first = start(&mut book, request.clone()).unwrap();
        request.id = "00000000-0000-7000-8000-000000000099".parse().unwrap();
        assert_eq!(start(&mut book, request).unwrap().id, first.id);
    }

    #[test]
    fn a_pin_is_a_window_and_its_nodes() {
        let node: NodeId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        let other: NodeId = "00000000-0000-7000-8000-000000000002".parse().unwrap();
        let mut book = SessionBook::default();
        let mut narrow = plan(1, "narrow", 500);
        narrow.selection.nodes = Some(vec![node]);
        (narrow.from, narrow.until) = (PIN_LEAD + Micros(100), Some(PIN_LEAD + Micros(200)));
        start(&mut book, narrow).unwrap();
        let lead = |micros| PIN_LEAD + Micros(micros);
        assert!(book.pins(lead(200), lead(300)).is_empty());
        assert!(book.pins(Micros(0), Micros(99)).is_empty());
        let pins = book.pins(lead(150), lead(300));
        let [pin] = pins.as_slice() else { panic!("{pins:?}") };
        assert!(pin.selects(Some(node), Micros(100)) && pin.selects(None, lead(199)));
        assert!(!pin.selects(Some(node), lead(200)) && !pin.selects(Some(other), lead(150)));
        assert!(!pin.selects(Some(node), Micros(99)));
        assert!(!pin.covers(Micros(100), Micros(150)), "not of every node");
        start(&mut book, plan(2, "all", 500)).unwrap();
        assert!(
            book.pins(Micros(100), Micros(150)).iter().any(|p| p.covers(Micros(100), Micros(150)))
        );
    }

    #[test]
    fn the_shortest_period_of_open_sessions_wins() {
        let node: NodeId = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        let other: NodeId = "00000000-0000-7000-8000-000000000002".parse().unwrap();
        let mut book = SessionBook::default();
        assert_eq!(book.period_of(node, Period::BASE), Period::BASE);
        start(&mut book, plan(1, "slow", 2_000)).unwrap();
        assert_eq!(book.period_of(node, Period::BASE).millis(), 2_000);
        let mut fast = plan(2, "fast", 200);
        fast.selection.nodes = Some(vec![node]);
        start(&mut book, fast).unwrap();
        assert_eq!(book.period_of(node, Period::BASE).millis(), 200);
        assert_eq!(book.period_of(other, Period::BASE).millis(), 2_000);
    }
}
