//! Spools of every format that was ever written by a release are still delivered.
//!
//! `released/<format>/spool` holds what two killed agents left, `expected.json` the records in it.
//! `cargo nextest run -p gswarm-node --run-ignored only writes_the_spool` makes one for a new format.

use std::fs;

use gswarm_store::StdDisk;
use gswarm_store::entry::FORMAT;

use super::*;

fn folder(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/released").join(format.to_string())
}

fn opened(dir: PathBuf, run: u64) -> Spool {
    Spool::open(SpoolParts {
        disk: Arc::new(StdDisk),
        dir,
        limits: SpoolLimits::default(),
        storage: StorageId::new(Uuid::from_u128(7)),
        incarnation: Incarnation(run),
        boot_id: format!("boot-{run}"),
    })
    .unwrap()
}

fn held(spool: &mut Spool) -> serde_json::Value {
    let limits = BatchLimits { records_max: 1_000, bytes_max: 1_000_000 };
    let batch = spool.read_batch(0, limits, at(99));
    let rows = batch.records.iter().map(|outgoing| {
        let table = outgoing.table.as_ref().map(|(_, table)| table.as_ref().clone());
        serde_json::json!({ "record": outgoing.record, "crc": outgoing.crc, "table": table })
    });
    serde_json::Value::Array(rows.collect())
}

#[test]
fn every_released_format_is_delivered() {
    for format in 1..=FORMAT {
        let data = folder(format);
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(data.join("spool")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let mut spool = opened(dir.path().to_owned(), 3);
        assert_eq!(spool.damage(), None);
        let expected = fs::read_to_string(data.join("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(held(&mut spool), expected, "format {format}");
    }
}

#[test]
#[ignore = "writes into the sources; for the release of a new format"]
fn writes_the_spool_of_this_format() {
    let data = folder(FORMAT);
    let dir = data.join("spool");
    fs::create_dir_all(&dir).unwrap();
    for run in 1..=2 {
        let mut spool = opened(dir.clone(), run);
        spool.append(at(1), text("started")).unwrap();
        for (number, kind) in [(2, 0), (3, 0), (4, 1)] {
            let (digest, cells) = (table(kind).digest(), Cells::new(vec![Some(1.5), None]));
            spool.offer_table(digest, &table(kind));
            spool.append(at(number), Body::Values(Values { table: digest, cells })).unwrap();
        }
        spool.ack_through(if run == 1 { 0 } else { 1 }, at(5));
        spool.persist_acks();
    }
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let expected = held(&mut opened(copy.path().to_owned(), 3));
    let text = serde_json::to_string_pretty(&expected).unwrap();
    fs::write(data.join("expected.json"), text).unwrap();
}
