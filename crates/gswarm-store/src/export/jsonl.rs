//! Every stored record once, ordered by node, incarnation and seq.

use std::collections::HashSet;
use std::io::Write;

use serde::Serialize;

use super::collect::{Order, collect};
use super::json::{gaps, time_text};
use super::{ExportError, ExportFacts, ExportInput};
use crate::entry::{StoredRecord, TableEntry};
use crate::reader::Reader;

#[derive(Serialize)]
struct ExportHead<'a> {
    export: HeadBody<'a>,
}

#[derive(Serialize)]
struct HeadBody<'a> {
    schema_version: u32,
    session_name: &'a str,
    session_id: String,
    start_time: String,
    end_time: String,
    simulated: bool,
    nodes: Vec<(String, String)>,
}

#[derive(Serialize)]
struct TableLine {
    table: TableEntry,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    record: RecordOut<'a>,
}

/// The stored record with the times people look for.
#[derive(Serialize)]
struct RecordOut<'a> {
    node: &'a str,
    time: String,
    node_time: String,
    /// Host time minus node time.
    offset_us: i64,
    #[serde(flatten)]
    stored: &'a StoredRecord,
}

#[derive(Serialize)]
struct GapLine<G: Serialize> {
    gap: G,
}

pub(super) fn write(
    reader: &Reader,
    input: &ExportInput,
    out: &mut (dyn Write + Send),
) -> Result<ExportFacts, ExportError> {
    let mut collected = collect(reader, input, Order::Source)?;
    let spec = &input.spec;
    line(
        out,
        &ExportHead {
            export: HeadBody {
                schema_version: 2,
                session_name: spec.name.as_str(),
                session_id: spec.id.to_string(),
                start_time: time_text(spec.from),
                end_time: time_text(input.until()),
                simulated: input.simulated || collected.is_simulated(),
                nodes: collected
                    .availability
                    .keys()
                    .map(|node| (node.to_string(), input.name_of(*node)))
                    .collect(),
            },
        },
    )?;
    let mut shown = HashSet::new();
    let mut records = 0;
    while let Some((_, payload)) = collected.merge.next().map_err(ExportError::Sort)? {
        let stored: StoredRecord = serde_json::from_slice(&payload)?;
        if let gswarm_types::Body::Values(values) = &stored.body {
            let key = (stored.node, stored.incarnation, values.table);
            if !shown.contains(&key)
                && let Some(table) = collected.tables.get(&key)
            {
                let table = TableEntry::new(Some(stored.node), stored.incarnation, table);
                line(out, &TableLine { table })?;
                shown.insert(key);
            }
        }
        line(
            out,
            &RecordLine {
                record: RecordOut {
                    node: &input.name_of(stored.node),
                    time: time_text(stored.time),
                    node_time: time_text(stored.wall),
                    offset_us: (stored.time - stored.wall).0,
                    stored: &stored,
                },
            },
        )?;
        records += 1;
    }
    for gap in gaps(input) {
        line(out, &GapLine { gap })?;
    }
    Ok(ExportFacts { records, frames: 0 })
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")?;
    Ok(())
}
