//! Configuration files: YAML in, flat `section.key` entries out.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use gswarm_api::ErrorCode;
use serde_json::Value;

use crate::fault::Fault;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The entries of a file in order of their names; `None` when there is no file.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Vec<(String, String)>>> {
    let text = match fs::metadata(path) {
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            let message = format!("`{}` is larger than 1 MiB", path.display());
            return Err(Fault::invalid(message).into());
        },
        Ok(_) => fs::read_to_string(path),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => parse(&text).map(Some).with_context(|| {
            let message = format!("`{}` is not a configuration file", path.display());
            Fault::new(ErrorCode::InvalidArgument, message)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

pub(super) fn parse(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let options = serde_saphyr::options! { with_snippet: false };
    let root: Value = serde_saphyr::from_str_with_options::<Option<Value>>(text, options)
        .map_err(|error| anyhow::anyhow!("{error}"))?
        .unwrap_or(Value::Null);
    let mut entries = Vec::new();
    match root {
        Value::Null => {},
        Value::Object(sections) => {
            for (name, value) in sections {
                flatten(name, value, &mut entries);
            }
        },
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            anyhow::bail!("it holds no sections such as `cluster:`");
        },
    }
    Ok(entries)
}

fn flatten(name: String, value: Value, entries: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {},
        Value::Object(map) if name != "nodes" => {
            for (key, value) in map {
                flatten(format!("{name}.{key}"), value, entries);
            }
        },
        Value::String(text) => entries.push((name, text)),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            entries.push((name, items.join(",")));
        },
        other => entries.push((name, other.to_string())),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The key that an entry of the old tool's `~/.gswarm.conf` stands for.
pub(super) fn new_name(old: &str) -> Option<&'static str> {
    match old {
        "client.host_url" => Some("cluster.host"),
        "client.node_id" => Some("agent.node_id"),
        "client.model_cache_dir" => Some("models.storage_path"),
        "client.dram_size" => Some("models.cache_size"),
        "host.port" => Some("host.port"),
        "host.http_port" => Some("host.http_port"),
        "host.model_port" => Some("host.model_port"),
        "host.freq" => Some("profiling.default_frequency"),
        "host.enable_bandwidth" => Some("profiling.enable_bandwidth"),
        "host.enable_nvlink" => Some("profiling.enable_nvlink"),
        _ => None,
    }
}
