//! Kills and power losses at every change of the disk, and every byte of a spool flipped.
//!
//! What a spool promises: a kill loses nothing, for the kernel has what was written. A power loss may
//! take what was not synced, and the spool syncs only the beginnings of its files: what is gone between
//! records that are left is named, and the end of a run by an open one. Nothing else ever happens.

use gswarm_store::disk::read_file;
use gswarm_trial::{Trial, rounds};

use super::*;

/// Long enough to fill more than a page.
const TEXT_BYTES: usize = 700;

fn small() -> Rig {
    let mut rig = Rig::new(64, 1 << 20);
    rig.spool.segment_records_max = 6;
    rig
}

/// Everything a spool does, in few changes of the disk: rolls, acknowledgements, a full spool, a new
/// incarnation, a clean stop and a second run.
const LIFE: [fn(&mut Rig); 7] = [
    |rig| {
        for number in 0_u16..16 {
            let _cut = rig.append(text(&"x".repeat(TEXT_BYTES + usize::from(number))));
            rig.append_values(u8::try_from(number % 2).unwrap(), f64::from(number));
        }
    },
    |rig| rig.ack(2),
    |rig| {
        rig.runs += 1;
        rig.spool.renew(Incarnation(rig.runs));
        for number in 0..10 {
            rig.append_values(2, f64::from(number));
        }
    },
    |rig| rig.ack(3),
    |rig| {
        rig.stop();
        rig.spool.segment_records_max = 6;
    },
    |rig| {
        for number in 0..60 {
            rig.append_values(1, f64::from(number));
        }
    },
    |rig| {
        rig.ack(1);
        rig.append_values(0, 1.0);
    },
];

fn changes_of_a_life() -> u64 {
    let mut rig = small();
    for step in LIFE {
        step(&mut rig);
    }
    rig.disk.changes()
}

/// Lives until the change with this count, which and after which nothing reaches the disk.
fn live_until(cut: u64) -> Rig {
    let mut rig = small();
    rig.disk.cut_power_at(cut);
    for step in LIFE {
        if rig.disk.changes() >= cut {
            break;
        }
        step(&mut rig);
    }
    rig
}

/// Starts again and shows the host everything; records that are gone without a word.
fn lost_after(rig: &mut Rig) -> Vec<Key> {
    rig.kill();
    rig.append(text("after")).unwrap();
    let now = rig.now();
    rig.spool.explain(now);
    rig.show();
    // What explaining pushed out of a full spool is explained by the end.
    let now = rig.now();
    rig.spool.end(now);
    rig.show();
    rig.lost()
}

#[test]
fn a_kill_at_any_change_loses_nothing() {
    let mut trial = Trial::new("an agent is killed at every change of its spool");
    let every = usize::try_from(rounds(2, 1)).unwrap();
    for cut in (0..=changes_of_a_life()).step_by(every) {
        let mut rig = live_until(cut);
        rig.disk.revive();
        let lost = lost_after(&mut rig);
        trial.rounds += 1;
        trial.faults += 1;
        trial.records += rig.taken.len() as u64;
        trial.lost += lost.len() as u64;
        assert_eq!(lost, [], "killed at change {cut}");
    }
}

#[test]
fn whatever_a_power_loss_takes_at_any_change_is_named() {
    let mut trial = Trial::new("a node loses power at every change of its spool");
    let seeds = rounds(1, 40);
    let mut gone = 0;
    for cut in 0..=changes_of_a_life() {
        for seed in (0..seeds).map(|more| cut * seeds + more) {
            let mut rig = live_until(cut);
            rig.disk.power_loss(seed);
            let lost = lost_after(&mut rig);
            trial.rounds += 1;
            trial.seeds += 1;
            trial.faults += 1;
            trial.records += rig.taken.len() as u64;
            trial.lost += lost.len() as u64;
            gone += rig.taken.keys().filter(|key| !rig.shown.contains(key)).count();
            assert_eq!(lost, [], "cut {cut} seed {seed}: gone without a name");
        }
    }
    assert!(gone > 0, "the disk forgot nothing");
}

/// A spool as a killed agent leaves it, with acknowledged files gone and an acknowledgement file.
fn recording() -> Rig {
    let mut rig = small();
    for number in 0..18 {
        rig.append_values(u8::try_from(number % 2).unwrap(), f64::from(number));
        rig.append(text(&number.to_string())).unwrap();
    }
    rig.ack(2);
    rig.append(text("not acknowledged")).unwrap();
    rig.spool.persist_acks();
    rig
}

fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut names = disk.list(Path::new(DIR)).unwrap();
    names.sort();
    names.iter().map(|name| Path::new(DIR).join(name)).collect()
}

#[test]
fn any_flipped_bit_costs_at_most_its_line_and_is_named() {
    let mut trial = Trial::new("every byte of a small spool flipped");
    let original = recording();
    let paths = files(&original.disk);
    assert!(paths.iter().any(|path| path.ends_with("ack.json")), "{paths:?}");
    for path in paths {
        let bytes = read_file(&original.disk, &path, 100_000).unwrap();
        let every = usize::try_from(rounds(5, 1)).unwrap();
        for at in (0..bytes.len()).step_by(every) {
            for more in 0..rounds(1, 8) {
                let bit = u8::try_from((at as u64 + more) % 8).unwrap();
                trial.rounds += 1;
                trial.faults += 1;
                let lost = flipped(&original, &path, at, bit);
                trial.records += original.taken.len() as u64;
                trial.lost += lost.len() as u64;
                assert_eq!(lost, [], "{path:?} byte {at} bit {bit}");
            }
        }
    }
}

/// Unacknowledged records that are neither shown by the next run nor named, but for the last one:
/// without a later record nobody can tell that it was ever there.
fn flipped(original: &Rig, path: &Path, at: usize, bit: u8) -> Vec<Key> {
    let disk = original.disk.fork();
    assert!(disk.flip(path, at, bit));
    let mut next = Rig {
        spool: open(&disk, original.limits, 2).unwrap(),
        disk,
        limits: original.limits,
        runs: 2,
        clock: original.clock,
        taken: original.taken.clone(),
        shown: BTreeSet::new(),
        acked: BTreeSet::new(),
        named: Vec::new(),
    };
    let damage = next.spool.damage();
    next.append(text("after")).unwrap();
    let now = next.now();
    next.spool.explain(now);
    // Each record is compared with what was taken.
    next.show();
    let last = original.spool.view().last_seq;
    let unshown = |key: &Key| !original.acked.contains(key) && key.1 != last;
    let lost: Vec<Key> = next.lost().into_iter().filter(unshown).collect();
    let of_it = |loss: &&SpoolLoss| loss.incarnation == Incarnation(1) && !loss.is_open();
    let named_here = next.named.iter().filter(of_it);
    let gone: u64 = named_here.map(|loss| loss.last - loss.first + 1).sum();
    assert!(gone <= 1 || damage.is_some(), "{path:?} byte {at} bit {bit}: {gone} records");
    lost
}
