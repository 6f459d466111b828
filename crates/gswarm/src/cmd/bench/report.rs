//! What a run found.

use serde::Serialize;

use super::ledger::Audit;
use super::load::Entry;
use super::rig::Rig;
use crate::args::bench::{IngestArgs, Scenario};
use crate::output::{Page, Table, Tone};
use crate::units;

/// Milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) count: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

impl Latency {
    /// `None` when nothing was timed.
    pub(super) fn of(micros: &[u64]) -> Option<Self> {
        let mut sorted = micros.to_vec();
        sorted.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "a latency of years is none")]
        let at = |thousandths: usize| {
            let place = (sorted.len() * thousandths / 1_000).min(sorted.len() - 1);
            sorted.get(place).map_or(0.0, |micros| *micros as f64 / 1_000.0)
        };
        if sorted.is_empty() {
            return None;
        }
        let (p50, p99, p999, max) = (at(500), at(990), at(999), at(1_000));
        Some(Self { count: sorted.len(), p50, p99, p999, max })
    }
}

/// Everything, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) scenario: String,
    pub(super) nodes: u32,
    pub(super) gpus: u32,
    /// Metrics of each GPU; 0 for all of them.
    pub(super) metrics: usize,
    pub(super) period_ms: i64,
    pub(super) seed: u64,
    pub(super) seconds: f64,
    /// Records that were acknowledged in the measured time.
    pub(super) records_in_window: u64,
    /// Records that the agents made from the first to the last.
    pub(super) sampled: u64,
    pub(super) left_in_spools: u64,
    pub(super) dropped: u64,
    pub(super) ticks_skipped: u64,
    pub(super) audit: Audit,
    /// From the moment a record was due.
    pub(super) ack: Option<Latency>,
    pub(super) visible: Option<Latency>,
    /// The disk's own, in the same seconds.
    pub(super) fdatasync: Option<Latency>,
    pub(super) host_cpu_seconds: Option<f64>,
    pub(super) host_resident_bytes_max: Option<u64>,
    pub(super) host_kills: u64,
    /// From the host's return until it had what was recorded meanwhile.
    pub(super) recovery_seconds: Option<f64>,
    pub(super) sessions_stopped: u64,
    pub(super) sessions_incomplete: u64,
    pub(super) journal_line_bytes: Option<u64>,
    pub(super) journal_sealed_bytes: Option<u64>,
}

impl Report {
    pub(super) fn new(args: &IngestArgs, metrics: usize) -> Self {
        Self {
            scenario: scenario_word(args.scenario),
            nodes: args.nodes,
            gpus: args.gpus,
            metrics,
            period_ms: args.freq.millis(),
            seed: args.seed,
            seconds: 0.0,
            records_in_window: 0,
            sampled: 0,
            left_in_spools: 0,
            dropped: 0,
            ticks_skipped: 0,
            audit: Audit::default(),
            ack: None,
            visible: None,
            fdatasync: None,
            host_cpu_seconds: None,
            host_resident_bytes_max: None,
            host_kills: 0,
            recovery_seconds: None,
            sessions_stopped: 0,
            sessions_incomplete: 0,
            journal_line_bytes: None,
            journal_sealed_bytes: None,
        }
    }

    /// Adds what is known only in the end.
    pub(super) fn settle(&mut self, entries: &[Entry], audit: Audit, rig: &Rig) {
        let sum = |of: fn(&Entry) -> u64| entries.iter().map(of).sum();
        self.sampled = sum(|entry| entry.sampled);
        self.left_in_spools = sum(|entry| entry.left_in_spool);
        self.dropped = sum(|entry| entry.dropped);
        self.ticks_skipped = sum(|entry| entry.ticks_skipped);
        self.audit = audit;
        if let Some((lines, sealed)) = rig.journal_bytes() {
            self.journal_line_bytes = Some(lines);
            self.journal_sealed_bytes = Some(sealed);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.audit.is_clean() && self.audit.records == self.sampled && self.sessions_incomplete == 0
    }

    pub(super) fn page(&self) -> Page {
        let metrics = match self.metrics {
            0 => "all".to_owned(),
            count => count.to_string(),
        };
        let head = format!(
            "{}: {} nodes x {} GPUs x {metrics} metrics every {} ms for {:.0} s (seed {})",
            self.scenario, self.nodes, self.gpus, self.period_ms, self.seconds, self.seed
        );
        let verdict = if self.is_complete() {
            Tone::Good.paint("every record is there, once and in order")
        } else {
            Tone::Bad.paint("records are missing, repeated or out of order")
        };
        Page::default()
            .line(head)
            .facts([
                ("  ledger", verdict),
                ("  records", self.records_line()),
                ("  host", self.host_line()),
                ("  export", self.export_line()),
                ("  ticks left out", self.ticks_skipped.to_string()),
                ("  recovery", self.recovery_line()),
            ])
            .blank()
            .table(self.latencies())
    }

    fn records_line(&self) -> String {
        let audit = &self.audit;
        format!(
            "{} made = {} exported; {} missing, {} repeated, {} strange, {} gaps, {} dropped",
            self.sampled,
            audit.records,
            audit.missing,
            audit.repeated,
            audit.strange,
            audit.gaps,
            self.dropped
        )
    }

    #[expect(clippy::cast_precision_loss, reason = "counts for people")]
    fn host_line(&self) -> String {
        let per_second = self.records_in_window as f64 / self.seconds.max(1e-9);
        match (self.host_cpu_seconds, self.host_resident_bytes_max) {
            (Some(cpu), Some(resident)) => format!(
                "{per_second:.0} records/s with {:.1} % of a core and at most {}",
                cpu / self.seconds.max(1e-9) * 100.0,
                units::bytes(resident)
            ),
            _ => format!("{per_second:.0} records/s"),
        }
    }

    fn export_line(&self) -> String {
        let audit = &self.audit;
        format!("{} in {:.1} s", units::bytes(audit.export_bytes), audit.export_seconds)
    }

    fn recovery_line(&self) -> String {
        match self.recovery_seconds {
            Some(seconds) => {
                format!(
                    "{}; at most {seconds:.1} s to catch up",
                    units::count(self.host_kills, "kill")
                )
            },
            None => units::ABSENT.to_owned(),
        }
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new(["LATENCY, MS", "P50>", "P99>", "P99.9>", "MOST>"]);
        for (name, latency) in [
            ("due to acknowledged", self.ack),
            ("due to visible", self.visible),
            ("the disk's fdatasync of 64 KiB", self.fdatasync),
        ] {
            let Some(latency) = latency else { continue };
            let [p50, p99, p999, max] =
                [latency.p50, latency.p99, latency.p999, latency.max].map(|ms| format!("{ms:.1}"));
            table.row([name.to_owned(), p50, p99, p999, max]);
        }
        table
    }
}

fn scenario_word(scenario: Scenario) -> String {
    use clap::ValueEnum;
    scenario.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
