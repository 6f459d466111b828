//! Names that people type and that become file names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in characters.
pub const NAME_CHARS_MAX: usize = 128;

/// Why a text cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {kind} name cannot be empty")]
    Empty { kind: &'static str },
    #[error("a {kind} name has at most {NAME_CHARS_MAX} characters, this one has {chars}")]
    Long { kind: &'static str, chars: usize },
    #[error(
        "`{name}` is not a {kind} name: it starts with a letter or digit and holds only letters, \
         digits, `.`, `_` and `-`"
    )]
    Shape { kind: &'static str, name: String },
}

fn check(kind: &'static str, text: &str) -> Result<(), NameError> {
    let chars = text.chars().count();
    if chars == 0 {
        return Err(NameError::Empty { kind });
    }
    if chars > NAME_CHARS_MAX {
        return Err(NameError::Long { kind, chars });
    }
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let holds_well =
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if starts_well && holds_well {
        Ok(())
    } else {
        let name = text.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect();
        Err(NameError::Shape { kind, name })
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check($kind, &text)?;
                Ok(Self(text))
            }

            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a session; it becomes `<name>.json`.
    SessionName,
    "session"
);
name!(
    /// What people call a node; bound to one `NodeId` on first use.
    NodeName,
    "node"
);

impl NodeName {
    /// A name from whatever the machine calls itself: other characters become `-`.
    pub fn from_hostname(hostname: &str) -> Self {
        let text: String = hostname
            .chars()
            .map(
                |c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' },
            )
            .skip_while(|c| !c.is_ascii_alphanumeric())
            .take(NAME_CHARS_MAX)
            .collect();
        if text.is_empty() { Self("node".to_owned()) } else { Self(text) }
    }

    /// The name with `-2`, `-3`, ... for a second machine of the same name.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Self {
        let suffix = format!("-{number}");
        let stem: String = self.0.chars().take(NAME_CHARS_MAX - suffix.len()).collect();
        Self(stem + &suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_name(text: &str, expected: Result<(), &str>) {
        let got = SessionName::new(text).map(|_| ()).map_err(|e| e.to_string());
        match expected {
            Ok(()) => assert_eq!(got, Ok(())),
            Err(part) => assert!(got.as_ref().is_err_and(|e| e.contains(part)), "{got:?}"),
        }
    }

    #[test]
    fn only_names_that_are_safe_as_files() {
        check_name("training_run_1", Ok(()));
        check_name("a", Ok(()));
        check_name(&"x".repeat(128), Ok(()));
        check_name(&"x".repeat(129), Err("this one has 129"));
        check_name("", Err("cannot be empty"));
        check_name("../../x", Err("is not a session name"));
        check_name("..", Err("is not a session name"));
        check_name("a/b", Err("is not a session name"));
        check_name("a\0b", Err("is not a session name"));
        check_name("a\nb", Err("a\\nb"));
        check_name("größe", Err("is not a session name"));
        check_name(&"x".repeat(4000), Err("this one has 4000"));
    }

    #[test]
    fn hostnames_become_names() {
        assert_eq!(NodeName::from_hostname("gpu-01.rack 7").as_str(), "gpu-01.rack-7");
        assert_eq!(NodeName::from_hostname("---").as_str(), "node");
        assert_eq!(NodeName::new("x".repeat(128)).unwrap().numbered(12).as_str().len(), 128);
    }
}
