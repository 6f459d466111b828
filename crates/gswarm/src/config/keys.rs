//! Every key of the configuration, its kind and its default.

use gswarm_types::Micros;

use crate::units;

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Text that is not shown.
    Secret,
    /// An address to listen on.
    Address,
    Port,
    Switch,
    /// Milliseconds or a span.
    Period,
    /// `24h`.
    Span,
    /// `24h`, at least and at most so many seconds.
    SpanWithin(i64, i64),
    /// `10GB`.
    Bytes,
    /// `10GB`, at least and at most so many bytes.
    BytesWithin(u64, u64),
    Count,
    /// A whole number, at least and at most so many.
    CountWithin(u32, u32),
    /// Values separated by commas, or a YAML list.
    List,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Anything; read by a later version.
    Opaque,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Path in the file, joined by dots.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Option<&'static str>,
}

const fn key(path: &'static str, kind: Kind, default: Option<&'static str>) -> Key {
    Key { path, kind, default }
}

#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("cluster.host", Kind::Text, None),
    key("cluster.port", Kind::Port, None),
    key("profiling.default_frequency", Kind::Period, Some("500")),
    key("profiling.enable_bandwidth", Kind::Switch, Some("false")),
    key("profiling.enable_nvlink", Kind::Switch, Some("false")),
    key("host.listen", Kind::Address, Some("127.0.0.1")),
    key("host.port", Kind::Port, Some("8090")),
    key("host.http_port", Kind::Port, Some("8091")),
    key("host.model_port", Kind::Port, Some("9010")),
    key("host.single_port", Kind::Switch, Some("false")),
    key("host.base_freq", Kind::Period, Some("1000")),
    key("host.output_dir", Kind::Text, None),
    key("host.sim", Kind::Switch, Some("false")),
    key("agent.node_id", Kind::Text, None),
    key("agent.devices", Kind::Text, Some("auto")),
    key("agent.freq", Kind::Period, None),
    key("agent.extra_metrics", Kind::List, None),
    key("agent.allow", Kind::List, None),
    key("agent.resilient", Kind::Switch, Some("true")),
    key("agent.state_dir", Kind::Text, None),
    key("agent.nvml_library", Kind::Text, None),
    key("agent.token", Kind::Secret, None),
    key("agent.token_file", Kind::Text, Some("/etc/gswarm/join")),
    key("agent.insecure", Kind::Switch, Some("false")),
    key("store.data_dir", Kind::Text, None),
    key("store.budget", Kind::Bytes, None),
    key("store.keep", Kind::Span, Some("24h")),
    // A segment is sealed in memory, and is looked at once a second.
    key("store.segment_size", Kind::BytesWithin(1 << 20, 1 << 28), Some("64MiB")),
    key("store.segment_age", Kind::SpanWithin(1, 86_400), Some("10m")),
    key("security.insecure", Kind::Switch, Some("false")),
    key("security.legacy_from", Kind::List, None),
    key("security.certificate_life", Kind::SpanWithin(10, 10 * 365 * 86_400), Some("90d")),
    key("http.allowed_hosts", Kind::List, None),
    key("http.cors_origins", Kind::List, None),
    key("http.body_size", Kind::BytesWithin(1 << 10, 1 << 28), Some("1MiB")),
    key("http.header_size", Kind::BytesWithin(1 << 13, 1 << 20), Some("64KiB")),
    key("http.json_depth", Kind::CountWithin(4, 100), Some("32")),
    key("http.connections", Kind::CountWithin(16, 1_000_000), Some("16384")),
    key("http.connections_per_address", Kind::CountWithin(4, 1_000_000), Some("4096")),
    key("http.requests_per_second", Kind::CountWithin(1, 1_000_000), Some("200")),
    key("http.failures_per_minute", Kind::CountWithin(1, 1_000_000), Some("30")),
    key("http.header_time", Kind::SpanWithin(1, 3_600), Some("15s")),
    key("http.answer_time", Kind::SpanWithin(1, 3_600), Some("60s")),
    key("log.level", Kind::Word(&["error", "warn", "info", "debug", "trace"]), Some("info")),
    key("log.json", Kind::Switch, Some("false")),
    key("log.to", Kind::Word(&["auto", "file", "stdout", "stderr"]), Some("auto")),
    key("log.dir", Kind::Text, None),
    key("log.max_size", Kind::Bytes, Some("20MB")),
    key("log.max_files", Kind::Count, Some("5")),
    key("models.storage_path", Kind::Text, None),
    key("models.cache_size", Kind::Bytes, None),
    key("queue.max_concurrent_tasks", Kind::Count, Some("4")),
    key("queue.task_timeout", Kind::Count, Some("3600")),
    key("queue.retry_count", Kind::Count, Some("3")),
    key("nodes", Kind::Opaque, None),
];

impl Key {
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// `GSWARM_` and the path joined by `__`.
    pub(crate) fn variable(&self) -> String {
        format!("GSWARM_{}", self.path.replace('.', "__").to_ascii_uppercase())
    }
}

impl Kind {
    /// Why the text is no value of this kind.
    pub(crate) fn check(self, text: &str) -> Result<(), String> {
        let wrong = |expected: &str| Err(format!("`{text}` is not {expected}"));
        match self {
            Self::Text | Self::Secret | Self::List | Self::Opaque => Ok(()),
            Self::Address if text.parse::<std::net::IpAddr>().is_err() => {
                wrong("an IP address such as 127.0.0.1 or 0.0.0.0")
            },
            Self::Port if text.parse::<u16>().is_err() => wrong("a port (0 to 65535)"),
            Self::Switch if text.parse::<bool>().is_err() => wrong("true or false"),
            Self::Period => {
                units::parse_period(text).map(|_| ()).map_err(|e| format!("`{text}`: {e}"))
            },
            Self::Span if gswarm_api::timestamp::parse_span(text).is_err() => {
                wrong("a span such as 90s, 10m, 24h or 7d")
            },
            Self::SpanWithin(min, max)
                if gswarm_api::timestamp::parse_span(text).map_or(true, |span| {
                    span < Micros::from_secs(min) || span > Micros::from_secs(max)
                }) =>
            {
                wrong(&format!("a span of {min} to {max} seconds, such as 90s or 10m"))
            },
            Self::Bytes if units::parse_bytes(text).is_err() => {
                wrong("a size such as 500MB or 10GB")
            },
            Self::BytesWithin(min, max)
                if units::parse_bytes(text).map_or(true, |bytes| bytes < min || bytes > max) =>
            {
                wrong(&format!(
                    "a size of {} to {}, such as 64MiB",
                    units::binary(min),
                    units::binary(max)
                ))
            },
            Self::Count if text.parse::<u32>().is_err() => wrong("a whole number"),
            Self::CountWithin(min, max)
                if text.parse::<u32>().map_or(true, |count| count < min || count > max) =>
            {
                wrong(&format!("a whole number of {min} to {max}"))
            },
            Self::Word(words) if !words.contains(&text) => {
                wrong(&format!("one of {}", words.join(", ")))
            },
            Self::Address
            | Self::Port
            | Self::Switch
            | Self::Span
            | Self::SpanWithin(..)
            | Self::Bytes
            | Self::BytesWithin(..)
            | Self::Count
            | Self::CountWithin(..)
            | Self::Word(_) => Ok(()),
        }
    }
}

/// The known key that looks most like the text, if one is close.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    KEYS.iter()
        .map(|key| {
            let whole = distance(path, key.path);
            // The right word in the wrong section is one step away.
            let moved = distance(&last(path), &last(key.path)) + 1;
            (whole.min(moved), key.path)
        })
        .min()
        .filter(|(distance, _)| *distance <= (path.len() / 3).clamp(1, 4))
        .map(|(_, path)| path)
}

/// How many letters must change, appear or go.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut before = i + 1;
        for (right, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let cost = (diagonal + usize::from(left != *right)).min(*cell + 1).min(before + 1);
            diagonal = *cell;
            before = cost;
            *cell = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_else(|| a.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_values_of_their_kind() {
        for key in KEYS {
            if let Some(default) = key.default {
                assert_eq!(key.kind.check(default), Ok(()), "{}", key.path);
            }
            assert_eq!(Key::find(key.path).map(|k| k.path), Some(key.path));
        }
    }

    #[track_caller]
    fn check_nearest(path: &str, expected: Option<&str>) {
        assert_eq!(nearest(path), expected, "{path}");
    }

    #[test]
    fn mistyped_keys_find_their_neighbour() {
        check_nearest("profiling.default_freqency", Some("profiling.default_frequency"));
        check_nearest("cluster.prot", Some("cluster.port"));
        check_nearest("host.data_dir", Some("store.data_dir"));
        check_nearest("wholly.different", None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn bounds_are_told() {
        let check = |path: &str, text| Key::find(path).unwrap().kind.check(text);
        for good in ["1MiB", "64MB", "256MiB"] {
            assert_eq!(check("store.segment_size", good), Ok(()));
        }
        let wrong = check("store.segment_size", "500KB").unwrap_err();
        assert_eq!(wrong, "`500KB` is not a size of 1 MiB to 256 MiB, such as 64MiB");
        assert!(check("store.segment_size", "1GB").is_err());
        assert!(check("store.segment_size", "large").is_err());
        assert_eq!(check("store.segment_age", "1s"), Ok(()));
        assert_eq!(check("store.segment_age", "24h"), Ok(()));
        let wrong = check("store.segment_age", "500ms").unwrap_err();
        assert_eq!(wrong, "`500ms` is not a span of 1 to 86400 seconds, such as 90s or 10m");
        assert!(check("store.segment_age", "2d").is_err());
    }

    #[test]
    fn variables_are_paths() {
        let key = Key::find("profiling.default_frequency").unwrap();
        assert_eq!(key.variable(), "GSWARM_PROFILING__DEFAULT_FREQUENCY");
    }
}
