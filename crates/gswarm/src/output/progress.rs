//! A progress bar on long work; nothing where no terminal shows it.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bytes that have passed.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// `bytes_total` may be an estimate, or unknown.
    pub(crate) fn bytes(label: &str, bytes_total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(bytes_total, ProgressDrawTarget::stderr());
        let template = if bytes_total.is_some() {
            "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
        } else {
            "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(super::clean(label).into_owned());
        Self(bar)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}
