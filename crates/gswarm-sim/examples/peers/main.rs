//! The same recording for gswarm and for time-series databases: the load of `side-by-side`.
//!
//! ```text
//! peers data FILE NODES TICKS SEED              writes the recording
//! peers gswarm FILE HOST PORT                   one record per message, one stream per node
//! peers remote-write FILE HOST PORT PATH BATCH  Prometheus remote write, BATCH samples per request
//! peers visible HOST PORT PATH TIMES            from a sample sent to the query that shows it
//! ```
//! The loads print one line of JSON when everything is acknowledged.

mod data;
mod gswarm;
mod remote_write;

use std::error::Error;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: peers data FILE NODES TICKS SEED | gswarm FILE HOST PORT | \
                     remote-write FILE HOST PORT PATH BATCH | visible HOST PORT PATH TIMES";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let report = match *words.as_slice() {
        ["data", file, nodes, ticks, seed] => {
            data::write(Path::new(file), nodes.parse()?, ticks.parse()?, seed.parse()?)?
        },
        ["gswarm", file, host, port] => gswarm::push(Path::new(file), host, port.parse()?)?,
        ["remote-write", file, host, port, path, batch] => {
            let address = (host, port.parse()?);
            remote_write::push(Path::new(file), address, path, batch.parse()?)?
        },
        ["visible", host, port, path, times] => {
            remote_write::visible((host, port.parse()?), path, times.parse()?)?
        },
        _ => return Err(USAGE.into()),
    };
    say(&report)
}

fn say(value: &Value) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}
