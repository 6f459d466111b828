//! `credentials.json`: the tokens of the hosts that this user logged in to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gswarm_api::Target;
use gswarm_tls::{Secret, Token};
use serde::{Deserialize, Serialize};

use super::{read_private, write_private};

#[derive(Default, Serialize, Deserialize)]
struct File {
    #[serde(default)]
    tokens: BTreeMap<String, String>,
}

/// What this user can show.
pub(crate) struct Credentials {
    path: PathBuf,
    file: File,
}

impl Credentials {
    pub(crate) fn open(root: &Path) -> anyhow::Result<Self> {
        let path = root.join("credentials.json");
        let unreadable = || format!("cannot read `{}`", path.display());
        let text = read_private(&path).with_context(unreadable)?;
        let file = match text {
            Some(text) => serde_json::from_str(&text).with_context(unreadable)?,
            None => File::default(),
        };
        Ok(Self { path, file })
    }

    pub(crate) fn token(&self, target: &Target) -> Option<Secret> {
        self.file.tokens.get(&target.to_string()).map(Secret::new)
    }

    pub(crate) fn keep(&mut self, target: &Target, token: &Token) -> anyhow::Result<()> {
        self.file.tokens.insert(target.to_string(), token.reveal().expose().to_owned());
        self.write()
    }

    /// False when there was none.
    pub(crate) fn forget(&mut self, target: &Target) -> anyhow::Result<bool> {
        let had = self.file.tokens.remove(&target.to_string()).is_some();
        self.write()?;
        Ok(had)
    }

    fn write(&self) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&self.file)?;
        write_private(&self.path, &text)
            .with_context(|| format!("cannot write `{}`", self.path.display()))
    }
}
