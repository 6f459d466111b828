//! Every committed seed through its target, without a fuzzer.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "it/messages.rs"]
mod messages;

use std::fs;
use std::path::{Path, PathBuf};

use gswarm_fuzz::TARGETS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// A panic inside names the file that caused it.
#[track_caller]
fn check(name: &str) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut seeds = 0;
    for file in fs::read_dir(corpus().join(name)).unwrap() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        target(&fs::read(&path).unwrap());
        seeds += 1;
    }
    assert!(seeds > 0, "{name} has no seeds");
}

#[test]
fn grpc_records() {
    check("grpc_records");
}

#[test]
fn grpc_legacy() {
    check("grpc_legacy");
}

#[test]
fn journal_segment() {
    check("journal_segment");
}

#[test]
fn spool_segment() {
    check("spool_segment");
}

#[test]
fn sealed_file() {
    check("sealed_file");
}

#[test]
fn checkpoint_and_small_files() {
    check("checkpoint_and_small_files");
}

#[test]
fn config() {
    check("config");
}

#[test]
fn credentials() {
    check("credentials");
}

#[test]
fn names() {
    check("names");
}

#[test]
fn replay_import() {
    check("replay_import");
}

#[test]
fn http_bodies() {
    check("http_bodies");
}

/// A target without a folder, a folder without a target, or either without libFuzzer.
#[test]
fn targets_and_folders_are_the_same() {
    let names = |dir: &Path| {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(names(&corpus()), targets);
    assert_eq!(names(&corpus().join("../fuzz_targets")), targets);
}
