//! The record export against what the agents made.

use std::collections::HashMap;

use gswarm_api::Client;
use serde::Serialize;

use super::load::Entry;

/// What the comparison found.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Audit {
    pub(super) records: u64,
    pub(super) missing: u64,
    pub(super) repeated: u64,
    /// Records of nobody, or out of order.
    pub(super) strange: u64,
    pub(super) gaps: u64,
    pub(super) export_bytes: u64,
    pub(super) export_seconds: f64,
}

impl Audit {
    pub(super) async fn of(
        client: &Client,
        session: &str,
        entries: &[Entry],
    ) -> anyhow::Result<Self> {
        let start = tokio::time::Instant::now();
        let mut audit = Self::default();
        let mut seen: HashMap<String, u64> =
            entries.iter().map(|entry| (entry.incarnation.clone(), 0)).collect();
        let mut download = client.export(session, "jsonl").await?;
        let mut rest: Vec<u8> = Vec::new();
        while let Some(piece) = download.next().await {
            let piece = piece?;
            audit.export_bytes += piece.len() as u64;
            rest.extend_from_slice(&piece);
            let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in rest.get(..end).unwrap_or(&[]).split(|byte| *byte == b'\n') {
                audit.line(line, &mut seen);
            }
            rest.drain(..end);
        }
        audit.line(&rest, &mut seen);
        let made = entries.iter().map(|entry| {
            let last = seen.get(&entry.incarnation).copied().unwrap_or(0);
            entry.sampled.saturating_sub(last)
        });
        audit.missing += made.sum::<u64>();
        audit.export_seconds = start.elapsed().as_secs_f64();
        Ok(audit)
    }

    fn line(&mut self, line: &[u8], seen: &mut HashMap<String, u64>) {
        if line.starts_with(b"{\"gap\":") {
            self.gaps += 1;
        }
        if !line.starts_with(b"{\"record\":") {
            return;
        }
        self.records += 1;
        let Some((incarnation, seq)) = identity(line) else {
            self.strange += 1;
            return;
        };
        let Some(last) = seen.get_mut(incarnation) else {
            self.strange += 1;
            return;
        };
        if seq == *last {
            self.repeated += 1;
        } else if seq < *last {
            self.strange += 1;
        } else {
            self.missing += seq - *last - 1;
            *last = seq;
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.missing == 0 && self.repeated == 0 && self.strange == 0 && self.gaps == 0
    }
}

/// Incarnation and seq of a line, without reading its numbers.
fn identity(line: &[u8]) -> Option<(&str, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once("\"i\":\"")?;
    let (incarnation, rest) = rest.split_once("\",\"s\":")?;
    let (seq, _) = rest.split_once(',')?;
    Some((incarnation, seq.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(incarnation: &str, seq: u64) -> Vec<u8> {
        format!(r#"{{"record":{{"node":"a","t":1,"i":"{incarnation}","s":{seq},"m":1}}}}"#).into()
    }

    #[test]
    fn every_kind_of_trouble_is_counted() {
        let mut audit = Audit::default();
        let mut seen = HashMap::from([("aa".to_owned(), 0)]);
        for (incarnation, seq) in [("aa", 1), ("aa", 2), ("aa", 2), ("aa", 5), ("aa", 3), ("bb", 1)]
        {
            audit.line(&line(incarnation, seq), &mut seen);
        }
        audit.line(br#"{"gap":{}}"#, &mut seen);
        audit.line(b"", &mut seen);
        assert_eq!((audit.records, audit.missing, audit.repeated), (6, 2, 1));
        assert_eq!((audit.strange, audit.gaps), (2, 1));
        assert!(!audit.is_clean());
    }
}
