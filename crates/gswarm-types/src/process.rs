//! Processes that hold memory on a device.

use serde::{Deserialize, Serialize};

/// What a process uses the device for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    Compute,
    Graphics,
}

/// One process on one device. Command lines are not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Position in the devices of the current table.
    pub device: u32,
    pub pid: u32,
    /// Program name; `None` when the process is in another pid namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The id of the scheduler's job that the process belongs to, as the node reports it; `None`
    /// outside of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Device memory; `None` where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    pub kind: ProcessKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line on disk, and the job in it.
    #[track_caller]
    fn check(json: &str, job: Option<&str>) {
        let row: ProcessRow = serde_json::from_str(json).unwrap();
        assert_eq!(row.job.as_deref(), job);
        assert_eq!(serde_json::to_string(&row).unwrap(), json);
    }

    #[test]
    fn a_line_without_a_job_stays_as_it_was() {
        check(r#"{"device":0,"pid":7,"user":"ada","kind":"compute"}"#, None);
        check(r#"{"device":0,"pid":7,"user":"ada","job":"12","kind":"compute"}"#, Some("12"));
    }
}
