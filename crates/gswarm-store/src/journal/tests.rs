//! The journal against a model, on a disk that loses power, fills up and fails.

mod world;
mod damage;
mod released;

use gswarm_trial::rounds;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use world::{Report, Step, World, open};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(0_u8..72, 1..5).prop_map(Step::Commit),
        2 => Just(Step::Roll),
        1 => Just(Step::Seal),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::DeleteCheckpoint),
        2 => Just(Step::Kill),
        2 => any::<u64>().prop_map(Step::PowerLoss),
        1 => (0_u8..14, any::<u64>()).prop_map(|(at, seed)| Step::PowerLossInRecovery(at, seed)),
        2 => (0_u8..12).prop_map(Step::FailOnce),
        1 => any::<bool>().prop_map(Step::SyncFails),
        1 => proptest::option::of(0_u16..9_000).prop_map(Step::Full),
    ]
}

#[test]
fn holds_what_was_acknowledged() {
    let mut report = Report::new("random lives of a journal: kills, power losses, failed calls");
    let cases = rounds(256, 3_000);
    let config =
        ProptestConfig { cases: u32::try_from(cases).unwrap(), ..ProptestConfig::default() };
    let scripts = (proptest::collection::vec(step(), 1..30), any::<u64>());
    let faults = std::cell::Cell::new(0);
    let lived = TestRunner::new(config).run(&scripts, |(script, seed)| {
        faults.set(faults.get() + 1 + script.iter().filter(|step| step.is_fault()).count() as u64);
        let mut world = World::counted(&report).play(&script);
        world.step(&Step::SyncFails(false));
        world.step(&Step::Full(None));
        world.step(&Step::PowerLoss(seed));
        world.check();
        Ok(())
    });
    report.trial.rounds = cases;
    report.trial.seeds = cases;
    report.trial.faults = faults.get();
    lived.unwrap();
}

/// Everything a journal does, in few changes of the disk.
fn life() -> Vec<Step> {
    vec![
        Step::Commit(vec![9, 15, 0]),
        Step::Commit(vec![3, 18, 12]),
        Step::Roll,
        Step::Commit(vec![9, 59, 4]),
        Step::Commit(vec![16, 35]),
        Step::Seal,
        Step::Kill,
        Step::Commit(vec![10, 3]),
        Step::Roll,
        Step::Checkpoint,
        Step::Commit(vec![21, 12]),
        Step::Seal,
        Step::Commit(vec![21, 13]),
    ]
}

/// Changes of the disk in the whole life.
fn changes_of_a_life() -> u64 {
    World::run(&life()).disk.changes()
}

/// Lives until the power goes at the change with this count.
fn live_until(cut: u64, report: &Report) -> World {
    let mut world = World::counted(report);
    world.disk.cut_power_at(cut);
    if !world.try_start() {
        return world;
    }
    for step in life() {
        if step != Step::Kill {
            world.step(&step);
        } else if !world.try_start() {
            return world;
        }
        if world.disk.changes() >= cut {
            break;
        }
    }
    world.journal = None;
    world
}

#[test]
fn power_may_go_at_every_moment() {
    let mut report =
        Report::new("power loss at every change of a journal, its seals and checkpoints");
    let seeds = rounds(3, 60);
    for cut in 0..=changes_of_a_life() {
        let world = live_until(cut, &report);
        for seed in 0..seeds {
            report.trial.rounds += 1;
            report.trial.seeds += 1;
            report.trial.faults += 1;
            world.continue_after(cut * seeds + seed, None);
        }
    }
}

#[test]
fn power_may_go_in_recovery_too() {
    let mut report = Report::new("power loss at every change of a journal's recovery");
    let every = usize::try_from(rounds(3, 1)).unwrap();
    for cut in (0..=changes_of_a_life()).step_by(every) {
        let world = live_until(cut, &report);
        for seed in (0..rounds(1, 4)).map(|more| cut + 1_000 * more) {
            let copy = world.disk.fork();
            copy.power_loss(seed);
            open(&copy).expect("opens");
            let recovery = copy.changes();
            report.trial.seeds += 1;
            for at in 0..=recovery {
                report.trial.rounds += 1;
                report.trial.faults += 2;
                world.continue_after(seed, Some(at));
            }
        }
    }
}

#[test]
fn killed_then_powerless_with_no_sync_between() {
    let mut report =
        Report::new("a journal is killed, started, and loses power with no sync between");
    let seeds = rounds(1, 40);
    for cut in 0..=changes_of_a_life() {
        let world = live_until(cut, &report);
        for seed in 0..seeds {
            report.trial.rounds += 1;
            report.trial.seeds += 1;
            report.trial.faults += 2;
            let mut after = world.fork();
            // The process starts on what the page cache still shows, then the power goes.
            after.start();
            after.step(&Step::PowerLoss(cut * seeds + seed));
            after.check();
        }
    }
}

#[test]
fn any_one_call_may_fail() {
    let mut report = Report::new("every single call of a journal to its disk fails once");
    for seed in 0..rounds(1, 10) {
        for at in 0..=changes_of_a_life() {
            report.trial.rounds += 1;
            report.trial.seeds += 1;
            report.trial.faults += 2;
            let mut world = World::counted(&report);
            world.disk.fail_once_at(at);
            world.step(&Step::Kill);
            for step in life() {
                world.step(&step);
                world.check();
            }
            world.step(&Step::PowerLoss(at + 1_000 * seed));
            world.check();
            // What failed is tried again and is there once.
            world.step(&Step::Commit(vec![9]));
            world.step(&Step::Kill);
        }
    }
}

#[test]
fn a_full_disk_resumes_by_itself() {
    for room in (0..6_000).step_by(37) {
        let mut world = World::run(&[Step::Commit(vec![9, 12]), Step::Full(Some(room))]);
        while world.commit(&[15, 18, 9]) {
            world.check();
        }
        world.check();
        assert!(!world.commit(&[9]), "still full");
        world.step(&Step::Full(None));
        assert!(world.commit(&[9]), "resumes");
        world.step(&Step::PowerLoss(u64::from(room)));
        world.check();
    }
}

#[test]
fn a_failed_sync_counts_for_nothing_and_is_not_believed_later() {
    let mut world = World::run(&[Step::Commit(vec![9, 12]), Step::SyncFails(true)]);
    assert!(!world.commit(&[9, 0, 18]));
    assert!(!world.roll());
    world.check();
    world.step(&Step::SyncFails(false));
    assert!(world.commit(&[]), "the same batch again");
    world.step(&Step::PowerLoss(3));
    world.check();
}

#[test]
fn the_reserve_is_left_alone() {
    let disk = crate::SimDisk::new();
    let mut config = world::config();
    config.disk_reserve_bytes = 10_000;
    let recovered = super::Journal::open(std::sync::Arc::new(disk.clone()), config).unwrap();
    let mut journal = recovered.journal;
    disk.set_space_left(Some(9_999));
    let refused = journal.commit(&[crate::fixture::host_event(1)], &super::NoTables);
    assert!(matches!(refused, Err(super::CommitError::Reserve { free_bytes: 9_999, .. })));
    disk.set_space_left(Some(10_000));
    journal.commit(&[crate::fixture::host_event(1)], &super::NoTables).unwrap();
}

#[test]
fn a_full_disk_keeps_nobody_from_reading() {
    // A commit whose sync is not told by a later mark has to be written again.
    let mut world = World::run(&[Step::Commit(vec![9, 12]), Step::Commit(vec![0, 9])]);
    world.journal = None;
    world.disk.set_space_left(Some(10));
    let recovered = open(&world.disk).expect("opens on a full disk");
    assert!(!recovered.unsaved.entries.is_empty(), "something waits for room");
    assert!(!world::entries(&world.disk, recovered.journal.catalog()).is_empty());
    drop(recovered);
    // The same again, with room later: everything is there once.
    world.start();
    world.disk.set_space_left(None);
    assert!(world.commit(&[9]));
    world.check();
    world.start();
}

#[test]
fn what_waits_for_room_survives_another_start() {
    // Enough is left for a checkpoint, not for the lines: it must not cover them.
    for left in 0..1_500 {
        World::run(&[
            Step::Commit(vec![18, 3, 12]),
            Step::Full(Some(left)),
            Step::PowerLossInRecovery(11, 0),
        ]);
    }
}

#[test]
fn a_segment_sealed_before_there_was_room_stays_sealed() {
    World::run(&[
        Step::Full(Some(0)),
        Step::Commit(vec![0]),
        Step::Kill,
        Step::Full(None),
        Step::Seal,
        Step::Commit(vec![0]),
        Step::Roll,
    ]);
}
