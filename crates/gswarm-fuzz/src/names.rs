//! Words that people type: what is accepted comes back the same from its own text.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use gswarm_api::Target;
use gswarm_api::timestamp::{parse_moment, parse_rfc3339, parse_span, rfc3339};
use gswarm_device::{DeviceSpec, SimSpec, parse_extra_metrics};
use gswarm_store::export::ExportFormat;
use gswarm_types::{
    Allow, EventKind, Incarnation, JobId, MetricName, Micros, NAME_CHARS_MAX, NodeId, NodeName,
    SessionId, SessionName, StorageId, TableDigest,
};

/// One word; what is no UTF-8 cannot be typed.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same_again::<SessionName>(text);
    same_again::<NodeName>(text);
    same_again::<NodeId>(text);
    same_again::<SessionId>(text);
    same_again::<StorageId>(text);
    same_again::<Incarnation>(text);
    same_again::<TableDigest>(text);
    same_again::<Target>(text);
    same_again::<SimSpec>(text);
    same_again::<DeviceSpec>(text);
    refused_in_words::<Allow>(text);
    refused_in_words::<ExportFormat>(text);
    session_names_are_file_names(text);
    node_names_come_from_anything(text);
    times(text);
    sizes(text);
    let _unknown = parse_extra_metrics(text);
    assert_eq!(MetricName::new(text).as_str(), text);
    assert_eq!(String::from(EventKind::from(std::borrow::Cow::Borrowed(text))), text);
    if let Ok(job) = JobId::new(text) {
        assert_eq!(JobId::new(job.as_str()), Ok(job.clone()));
    }
}

/// What is accepted is written as something that means the same.
#[track_caller]
fn same_again<T>(text: &str)
where
    T: FromStr<Err: Display> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            let again = written.parse::<T>().map_err(|error| error.to_string());
            assert_eq!(again.as_ref(), Ok(&value), "{written:?} means something else");
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn refused_in_words<T: FromStr<Err: Display>>(text: &str) {
    if let Err(error) = text.parse::<T>() {
        assert!(!error.to_string().is_empty());
    }
}

/// Exports carry the name of their session: it must stay one component of a path.
fn session_names_are_file_names(text: &str) {
    let Ok(name) = SessionName::new(text) else { return };
    let path = Path::new("/out").join(format!("{name}.json"));
    assert_eq!(path.parent(), Some(Path::new("/out")), "{name} leaves its directory");
    assert!(!name.as_str().starts_with('.'), "{name} is a hidden file");
}

fn node_names_come_from_anything(text: &str) {
    for name in [NodeName::from_hostname(text), NodeName::from_hostname(text).numbered(u32::MAX)] {
        assert!(name.as_str().len() <= NAME_CHARS_MAX);
        assert_eq!(NodeName::new(name.as_str()).as_ref(), Ok(&name), "made from {text:?}");
    }
}

fn times(text: &str) {
    if let Ok(span) = parse_span(text) {
        assert!(span >= Micros::ZERO, "a span of less than nothing");
    }
    let now = Micros::from_secs(1_767_225_600);
    if let Ok(moment) = parse_moment(text, now) {
        // What is too long ago has no date and stays a number.
        assert!(!rfc3339(moment).is_empty());
    }
    if let Ok(time) = parse_rfc3339(text) {
        assert_eq!(parse_rfc3339(&rfc3339(time)), Ok(time), "a time that is written differently");
    }
}

fn sizes(text: &str) {
    if let Some(bytes) = gswarm::fuzzed::bytes(text) {
        assert_eq!(gswarm::fuzzed::bytes(&bytes.to_string()), Some(bytes));
    }
    if let Some(millis) = gswarm::fuzzed::period_millis(text) {
        assert!((100..=3_600_000).contains(&millis), "a period of {millis} ms");
    }
}
