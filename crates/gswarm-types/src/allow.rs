//! What a node lets its host do there; decided on the node, never by the host.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One kind of work that a node may permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allow {
    /// Record metrics; always permitted.
    Observe,
    /// Run measurements that load the devices.
    Probe,
    /// Store, move and serve models.
    Models,
    /// Hold data chunks.
    Data,
    /// Run commands.
    Run,
}

impl Allow {
    pub const ALL: [Self; 5] = [Self::Observe, Self::Probe, Self::Models, Self::Data, Self::Run];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Probe => "probe",
            Self::Models => "models",
            Self::Data => "data",
            Self::Run => "run",
        }
    }
}

/// The word names no kind of work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` cannot be allowed: known are observe, probe, models, data, run")]
pub struct UnknownAllow {
    word: String,
}

impl FromStr for Allow {
    type Err = UnknownAllow;

    fn from_str(word: &str) -> Result<Self, UnknownAllow> {
        Self::ALL
            .into_iter()
            .find(|allow| allow.as_str() == word)
            .ok_or_else(|| UnknownAllow { word: word.chars().take(64).collect() })
    }
}

/// The kinds of work a node permits; `observe` is always in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Allow>", into = "Vec<Allow>")]
pub struct AllowSet(BTreeSet<Allow>);

impl AllowSet {
    pub fn contains(&self, allow: Allow) -> bool {
        self.0.contains(&allow)
    }

    pub fn iter(&self) -> impl Iterator<Item = Allow> + '_ {
        self.0.iter().copied()
    }
}

impl Default for AllowSet {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<Allow>> for AllowSet {
    fn from(list: Vec<Allow>) -> Self {
        Self(list.into_iter().chain([Allow::Observe]).collect())
    }
}

impl From<AllowSet> for Vec<Allow> {
    fn from(set: AllowSet) -> Self {
        set.0.into_iter().collect()
    }
}

impl fmt::Display for AllowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.iter().map(Allow::as_str).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observe_is_always_allowed() {
        assert_eq!(AllowSet::default().to_string(), "observe");
        assert_eq!(AllowSet::from(vec![Allow::Run]).to_string(), "observe,run");
        "root".parse::<Allow>().unwrap_err();
    }
}
