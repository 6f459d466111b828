//! A file that starts over when it is full and keeps a few of its predecessors.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `host.log`, with `host.log.1` (the newest) to `host.log.N` behind it.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// Files in all, the current one included.
    files_max: u32,
}

impl RotatingFile {
    pub(super) fn open(path: &Path, bytes_max: u64, files_max: u32) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_path_buf(), file, bytes, bytes_max, files_max: files_max.max(1) })
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.files_max == 1 {
            self.file.set_len(0)?;
        } else {
            for number in (1..self.files_max - 1).rev() {
                rename_if_there(&self.numbered(number), &self.numbered(number + 1))?;
            }
            rename_if_there(&self.path, &self.numbered(1))?;
            self.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        }
        self.bytes = 0;
        Ok(())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.bytes_max {
            // A log that cannot rotate still logs.
            self.rotate().or_else(|_| self.file.set_len(0).map(|()| self.bytes = 0))?;
        }
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(files_max: u32, lines: &[&str], expected: &[(&str, &str)]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        for line in lines {
            // Opened anew each time: what an earlier process wrote counts too.
            let mut log = RotatingFile::open(&path, 8, files_max).unwrap();
            log.write_all(line.as_bytes()).unwrap();
        }
        let mut found: Vec<(String, String)> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        found.sort();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_few_files_of_a_limited_size_are_kept() {
        let lines = ["1aaa\n", "2b\n", "3ccc\n", "4ddd\n", "5eee\n"];
        check(3, &lines, &[("a.log", "5eee\n"), ("a.log.1", "4ddd\n"), ("a.log.2", "3ccc\n")]);
        check(1, &lines, &[("a.log", "5eee\n")]);
        check(2, &["longer than the limit\n"], &[("a.log", "longer than the limit\n")]);
    }
}
