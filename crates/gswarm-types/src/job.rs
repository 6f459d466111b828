//! The id that a cluster's scheduler gave to a job.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest job id, in characters.
pub const JOB_ID_CHARS_MAX: usize = 64;

/// Why a text cannot be a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobIdError {
    #[error("a job id cannot be empty")]
    Empty,
    #[error("a job id has at most {JOB_ID_CHARS_MAX} characters, this one has {chars}")]
    Long { chars: usize },
    #[error("`{id}` is not a job id: it holds only letters, digits, `.`, `_` and `-`")]
    Shape { id: String },
}

/// A job that somebody asks for. What nodes report is not checked with it: a record keeps what
/// its agent said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

impl JobId {
    /// Checks `[A-Za-z0-9._-]{1,64}`.
    pub fn new(text: impl Into<String>) -> Result<Self, JobIdError> {
        let text = text.into();
        let chars = text.chars().count();
        if chars == 0 {
            return Err(JobIdError::Empty);
        }
        if chars > JOB_ID_CHARS_MAX {
            return Err(JobIdError::Long { chars });
        }
        if text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
            Ok(Self(text))
        } else {
            Err(JobIdError::Shape { id: text.escape_debug().to_string() })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobId {
    type Error = JobIdError;

    fn try_from(text: String) -> Result<Self, JobIdError> {
        Self::new(text)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(), &str>) {
        let got = JobId::new(text).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    #[test]
    fn ids_as_schedulers_give_them() {
        check("1234", Ok(()));
        check("1234_7.batch", Ok(()));
        check("-", Ok(()));
        check(&"x".repeat(64), Ok(()));
        check("", Err("a job id cannot be empty"));
        check(&"x".repeat(65), Err("a job id has at most 64 characters, this one has 65"));
        let shape = "is not a job id: it holds only letters, digits, `.`, `_` and `-`";
        check("12 34", Err(&format!("`12 34` {shape}")));
        check("job/1", Err(&format!("`job/1` {shape}")));
        check("1\n", Err(&format!("`1\\n` {shape}")));
        check("é", Err(&format!("`é` {shape}")));
    }
}
