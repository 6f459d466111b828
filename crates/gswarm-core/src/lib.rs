//! Pure decisions: what to store, which time it gets, who is healthy, which sessions are open.
//!
//! Time comes in as an argument, decisions go out as values.

mod intervals;
mod intake;
mod host_clock;
mod health;
mod sessions;
mod retention;
mod names;
mod access;

pub use access::{
    AccessBook, Applicant, ApproveRefusal, Asked, Certified, JoinRefusal, Member, TokenRecord,
    TokenRefusal,
};
pub use health::{Health, HealthChange, SILENCE_MAX};
pub use host_clock::{ClockReading, ClockStep, HostClock, STEP_MIN};
pub use intake::{
    Admission, ClockOffset, DamageSpan, Hole, Intake, LastStored, Listed, Lost, Source, SourceKey,
};
pub use intervals::{Interval, IntervalSet, Missing};
pub use names::{Binding, NameBook};
pub use retention::{
    KEEP_MIN, Pinned, Removal, RemovalReason, RetentionPlan, RetentionRules, SegmentFacts,
};
pub use sessions::{PIN_LEAD, Pin, SessionBook, SessionError, StartPlan};
