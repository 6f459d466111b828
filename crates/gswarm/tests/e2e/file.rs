//! What sessions leave behind: frames as `profiler stop` writes them, records as an export has them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

/// `<name>.json`.
pub(crate) struct Frames {
    pub(crate) json: Value,
}

/// The record export: every stored record once.
pub(crate) struct Records {
    /// By incarnation, in the order of the file.
    pub(crate) incarnations: BTreeMap<String, Vec<Row>>,
    pub(crate) gaps: Vec<Value>,
    /// Where the window begins.
    pub(crate) from_us: i64,
}

/// One record.
pub(crate) struct Row {
    pub(crate) node: String,
    pub(crate) seq: u64,
    /// The checksum it had in the spool of its agent.
    pub(crate) crc: u64,
    /// Host time.
    pub(crate) time_us: i64,
    /// When the host got it.
    pub(crate) receipt_us: i64,
    /// `values`, `event`, `end` and so on.
    pub(crate) kind: String,
}

impl Frames {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { json: serde_json::from_slice(&bytes).unwrap() }
    }

    pub(crate) fn frames(&self) -> &[Value] {
        self.json["frames"].as_array().unwrap()
    }

    pub(crate) fn time(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap()
    }

    /// Frames follow each other and every one of `gpus` GPUs has numbers.
    #[track_caller]
    pub(crate) fn check(&self, gpus: usize) {
        assert!(!self.frames().is_empty(), "no frames");
        assert_eq!(self.json["simulated"], true);
        let mut last = String::new();
        for (number, frame) in self.frames().iter().enumerate() {
            assert_eq!(frame["frame_id"], number);
            let time = frame["time"].as_str().unwrap();
            assert!(time > &*last, "frame {number} of {time} follows {last}");
            last = time.to_owned();
            for list in ["gpu_id", "gpu_util", "gpu_memory"] {
                assert_eq!(frame[list].as_array().unwrap().len(), gpus, "{list} of {time}");
            }
        }
        let ids: BTreeSet<&str> = strings(&self.frames()[0]["gpu_id"]).into_iter().collect();
        assert_eq!(ids.len(), gpus, "{ids:?}");
        for list in ["gpu_util", "gpu_memory"] {
            self.check_percents(list, gpus);
        }
        let devices = self.json["devices"].as_array().unwrap();
        assert!(devices.len() == gpus && devices.iter().all(|device| device["simulated"] == true));
        assert_eq!(self.json["summary_by_device"].as_object().unwrap().len(), gpus);
    }

    #[track_caller]
    fn check_percents(&self, list: &str, gpus: usize) {
        for gpu in 0..gpus {
            let cells = self.frames().iter().map(|frame| &frame[list][gpu]);
            let numbers: Vec<f64> = cells.filter_map(Value::as_f64).collect();
            assert!(!numbers.is_empty(), "GPU {gpu} has no {list}");
            assert!(numbers.iter().all(|number| (0.0..=100.0).contains(number)), "{numbers:?}");
        }
    }

    /// The nodes that have GPUs in the file, each once.
    pub(crate) fn nodes(&self) -> BTreeSet<&str> {
        let devices = self.json["devices"].as_array().unwrap();
        devices.iter().map(|device| device["node"].as_str().unwrap()).collect()
    }
}

impl Records {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&fs::read_to_string(path).unwrap())
    }

    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let mut records = Self { incarnations: BTreeMap::new(), gaps: Vec::new(), from_us: 0 };
        let mut order = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            let (kind, body) = line.as_object().unwrap().iter().next().unwrap();
            match &**kind {
                "export" => {
                    assert_eq!(number, 0);
                    let from = body["start_time"].as_str().unwrap();
                    records.from_us = gswarm_api::timestamp::parse_rfc3339(from).unwrap().0;
                },
                "table" => {},
                "record" => {
                    let (incarnation, row) = record(body);
                    let node_id = body["n"].as_str().unwrap().to_owned();
                    order.push((node_id, incarnation.clone(), row.seq));
                    records.incarnations.entry(incarnation).or_default().push(row);
                },
                "gap" => records.gaps.push(body.clone()),
                other => panic!("a line of kind `{other}`"),
            }
        }
        assert!(order.is_sorted(), "not ordered by node, incarnation and seq");
        records
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.incarnations.values().flatten()
    }

    /// Nothing is missing inside, nothing is there twice, and time never runs backwards.
    #[track_caller]
    pub(crate) fn check_unbroken(&self) {
        assert!(self.gaps.is_empty(), "{:#?}", self.gaps);
        for (incarnation, rows) in &self.incarnations {
            let node = &rows[0].node;
            for (row, expected) in rows.iter().zip(rows[0].seq..) {
                assert_eq!(row.seq, expected, "in incarnation {incarnation} of {node}");
            }
            assert!(rows.is_sorted_by_key(|row| row.time_us), "{incarnation} of {node}");
        }
    }

    /// And nothing is missing in front.
    #[track_caller]
    pub(crate) fn check_whole(&self) {
        self.check_unbroken();
        for (incarnation, rows) in &self.incarnations {
            assert_eq!(rows[0].seq, 1, "in incarnation {incarnation} of {}", rows[0].node);
        }
    }
}

fn record(body: &Value) -> (String, Row) {
    let kind = match &body["b"] {
        Value::String(kind) => kind.clone(),
        body => body.as_object().unwrap().keys().next().unwrap().clone(),
    };
    let row = Row {
        node: body["node"].as_str().unwrap().to_owned(),
        seq: body["s"].as_u64().unwrap(),
        crc: body["c"].as_u64().unwrap(),
        time_us: body["t"].as_i64().unwrap(),
        receipt_us: body["r"].as_i64().unwrap(),
        kind,
    };
    (body["i"].as_str().unwrap().to_owned(), row)
}

/// The strings of a JSON array.
pub(crate) fn strings(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}
