//! Scripts of arrivals against what must be stored and what must be missing.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn node() -> NodeId {
    "00000000-0000-7000-8000-000000000001".parse().unwrap()
}

const RUN: Incarnation = Incarnation(7);

fn record(seq: u64, body: Body) -> Record {
    let at = Micros(i64::try_from(seq).unwrap() * 100);
    Record { incarnation: RUN, seq, mono: at, wall: at, body }
}

fn plain(seq: u64) -> Record {
    record(seq, Body::Processes(Vec::new()))
}

fn admit(intake: &mut Intake, seq: u64) -> Admission {
    let offset = ClockOffset::Measured(Micros(1_000));
    intake.admit(node(), &plain(seq), 0, offset, Micros(1_000_000))
}

fn is_new(admission: Admission) -> bool {
    matches!(admission, Admission::Store { .. })
}

fn listed(oldest_held: u64, last: u64) -> Listed {
    Listed { incarnation: RUN, oldest_held, last }
}

fn end(hole: &Hole) -> String {
    hole.last.map_or_else(|| "?".to_owned(), |last| last.to_string())
}

#[track_caller]
fn check_holes(intake: &Intake, expected: &str) {
    let text: Vec<String> = intake
        .holes(node())
        .iter()
        .map(|hole| {
            let state = if hole.is_final { "final" } else { "open" };
            format!("{}-{} {} {state}", hole.first, end(hole), hole.reason.as_str())
        })
        .collect();
    assert_eq!(text.join(", "), expected);
}

#[test]
fn nothing_is_stored_twice() {
    let mut intake = Intake::default();
    assert!(is_new(admit(&mut intake, 1)));
    assert_eq!(admit(&mut intake, 1), Admission::Duplicate, "in the same batch");
    intake.commit();
    assert_eq!(admit(&mut intake, 1), Admission::Duplicate, "after the commit");
    assert!(is_new(admit(&mut intake, 5)));
    assert!(is_new(admit(&mut intake, 3)), "a seq inside a hole fills it");
    intake.commit();
    check_holes(&intake, "2-2 node_crash final, 4-4 node_crash final");
}

#[test]
fn a_failed_commit_counts_for_nothing() {
    let mut intake = Intake::default();
    admit(&mut intake, 1);
    intake.abort();
    let offset = ClockOffset::Measured(Micros(0));
    let earlier = intake.admit(node(), &plain(1), 0, offset, Micros(1_000_000));
    let Admission::Store { time, .. } = earlier else { panic!("not stored") };
    assert_eq!(time, Micros(100), "the time of the batch that failed is forgotten");
    intake.commit();
    assert_eq!(intake.source(node(), RUN).unwrap().last_stored().unwrap().seq, 1);
}

#[test]
fn holes_are_open_while_the_spool_holds_them() {
    let mut intake = Intake::default();
    intake.list(node(), &[listed(1, 6)], Micros(0));
    admit(&mut intake, 1);
    admit(&mut intake, 4);
    intake.commit();
    check_holes(&intake, "2-3 unknown open, 5-6 unknown open");
    intake.list(node(), &[listed(3, 6)], Micros(0));
    check_holes(&intake, "2-2 not_on_this_host final, 3-3 unknown open, 5-6 unknown open");
    let loss = SpoolLoss { incarnation: RUN, first: 2, last: 3, reason: GapReason::SpoolOverflow };
    intake.note_body(node(), RUN, 7, &Body::Loss(loss), Micros(900));
    intake.list(node(), &[listed(4, 6)], Micros(0));
    check_holes(&intake, "2-3 spool_overflow final, 5-6 unknown open");
    intake.list(node(), &[], Micros(0));
    check_holes(&intake, "2-3 spool_overflow final, 5-6 node_crash final");
}

#[test]
fn what_waits_for_the_disk_is_not_lost() {
    let mut intake = Intake::default();
    admit(&mut intake, 1);
    intake.commit();
    // A host that starts on a full disk holds records which their spool let go of long ago.
    admit(&mut intake, 2);
    admit(&mut intake, 3);
    intake.list(node(), &[listed(4, 4)], Micros(0));
    check_holes(&intake, "2-3 unknown open, 4-4 unknown open");
    intake.commit();
    check_holes(&intake, "4-4 unknown open");
    intake.list(node(), &[listed(5, 5)], Micros(0));
    check_holes(&intake, "4-4 not_on_this_host final, 5-5 unknown open");
}

#[test]
fn settled_means_stored_or_never_coming() {
    let mut intake = Intake::default();
    intake.list(node(), &[listed(1, 3)], Micros(0));
    admit(&mut intake, 1);
    intake.commit();
    let settled = |intake: &Intake, seq| intake.source(node(), RUN).unwrap().is_settled(seq, RUN);
    assert!(settled(&intake, 1));
    assert!(!settled(&intake, 3));
    intake.list(node(), &[listed(4, 3)], Micros(0));
    assert!(settled(&intake, 3));
    assert!(!settled(&intake, 9), "not minted yet as far as the host knows");
}

#[test]
fn times_do_not_run_backwards_nor_ahead_of_receipt() {
    let mut intake = Intake::default();
    let time = |intake: &mut Intake, seq, offset, receipt| match intake.admit(
        node(),
        &plain(seq),
        0,
        ClockOffset::Measured(Micros(offset)),
        Micros(receipt),
    ) {
        Admission::Store { time, .. } => time.0,
        Admission::Duplicate => -1,
    };
    assert_eq!(time(&mut intake, 1, 1_000, 5_000), 1_100);
    assert_eq!(time(&mut intake, 2, 500, 5_000), 1_100, "the offset fell: time stands still");
    assert_eq!(time(&mut intake, 4, 9_000, 5_000), 5_000, "never later than receipt");
    assert_eq!(time(&mut intake, 3, 1_000, 6_000), 1_300, "a late record keeps its own time");
}

/// A record of another run, at a time of its own.
fn put(intake: &mut Intake, run: u64, seq: u64, time: i64) {
    let record = Record {
        incarnation: Incarnation(run),
        seq,
        mono: Micros(time),
        wall: Micros(time),
        body: Body::Processes(Vec::new()),
    };
    intake.admit(node(), &record, 0, ClockOffset::Measured(Micros(0)), Micros(1_000_000));
    intake.commit();
}

#[track_caller]
fn check_times(intake: &Intake, expected: &str) {
    let time = |t: Option<Micros>| t.map_or_else(|| "?".to_owned(), |t| t.0.to_string());
    let text: Vec<String> = intake
        .holes(node())
        .iter()
        .map(|hole| format!("{}-{} {}..{}", hole.first, end(hole), time(hole.from), time(hole.to)))
        .collect();
    assert_eq!(text.join(", "), expected);
}

#[test]
fn a_lost_tail_ends_where_the_next_run_begins() {
    let mut intake = Intake::default();
    let item = |run, oldest_held, last| Listed { incarnation: Incarnation(run), oldest_held, last };
    intake.list(node(), &[item(7, 1, 5)], Micros(600));
    put(&mut intake, 7, 1, 100);
    put(&mut intake, 7, 2, 200);
    check_times(&intake, "3-5 200..?");
    // The spool lost its tail with the power: the next run does not list it.
    intake.list(node(), &[item(8, 1, 1)], Micros(900));
    check_times(&intake, "3-5 200..600, 1-1 ?..?");
    put(&mut intake, 8, 1, 500);
    check_times(&intake, "3-5 200..500");
    // A run whose beginning is gone lies after the run before it.
    intake.list(node(), &[item(9, 4, 4)], Micros(2_000));
    put(&mut intake, 9, 4, 1_500);
    check_times(&intake, "3-5 200..500, 1-3 500..1500");
}

#[test]
fn what_a_damaged_file_held_becomes_a_named_hole() {
    let mut intake = Intake::default();
    for seq in 1..=9 {
        put(&mut intake, 7, seq, i64::try_from(seq).unwrap() * 100);
    }
    intake.list(node(), &[listed(10, 9)], Micros(1_000));
    let mut found = BTreeMap::new();
    let mut there = IntervalSet::default();
    for seq in [3_u64, 4, 7, 8, 9] {
        there.insert(seq, Micros(i64::try_from(seq).unwrap() * 100));
    }
    found.insert((node(), RUN), there);
    // 1 and 2 expired long ago; 5 and 6 were in the file.
    let span = DamageSpan { from: Some(Micros(500)), to: Some(Micros(600)) };
    let lost = intake.lost(&found, span);
    assert_eq!(lost.len(), 1, "{lost:?}");
    for item in &lost {
        intake.uncount(item);
    }
    intake.note_damage(span);
    check_holes(&intake, "5-6 store_damaged final");
    check_times(&intake, "5-6 400..700");
    let text = serde_json::to_string(&intake).unwrap();
    assert_eq!(serde_json::from_str::<Intake>(&text).unwrap(), intake);
    assert!(is_new(admit(&mut intake, 5)), "an agent that still has it may give it again");
}

#[test]
fn runs_without_an_end_are_forgotten_too() {
    let mut intake = Intake::default();
    put(&mut intake, 7, 1, 100);
    intake.list(node(), &[], Micros(100));
    assert_eq!(intake.forget_old(FORGET_AFTER), 0);
    assert_eq!(intake.forget_old(FORGET_AFTER + Micros(100)), 1);
    intake.list(node(), &[listed(1, 1)], Micros(0));
    assert_eq!(intake.forget_old(FORGET_AFTER + FORGET_AFTER), 0, "a listed one is kept");
}

#[test]
fn a_run_that_left_nothing_but_its_reason_is_remembered_and_has_its_place() {
    let mut intake = Intake::default();
    put(&mut intake, 1, 1, 500);
    put(&mut intake, 3, 1, 900);
    let reason = GapReason::SpoolOverflow;
    let loss = SpoolLoss { incarnation: Incarnation(2), first: 1, last: 9, reason };
    intake.note_body(node(), Incarnation(3), 2, &Body::Loss(loss), Micros(907));
    assert_eq!(intake.forget_old(FORGET_AFTER), 0);
    check_times(&intake, "1-9 900..907");
}

#[test]
fn an_open_end_lies_behind_everything_that_is_known() {
    let mut intake = Intake::default();
    put(&mut intake, 1, 1, 500);
    put(&mut intake, 1, 4, 504);
    put(&mut intake, 2, 1, 900);
    let reason = GapReason::NodeCrash;
    let last = SpoolLoss::OPEN_END;
    let loss = SpoolLoss { incarnation: Incarnation(1), first: 3, last, reason };
    intake.note_body(node(), Incarnation(2), 1, &Body::Loss(loss), Micros(907));
    // The disk of the node had forgotten more than the host was sent.
    check_times(&intake, "2-3 500..504, 5-? 504..900");
    assert!(intake.source(node(), Incarnation(1)).unwrap().is_settled(4, Incarnation(1)));
}

#[test]
fn survives_the_checkpoint() {
    let mut intake = Intake::default();
    intake.list(node(), &[listed(1, 3)], Micros(5));
    admit(&mut intake, 2);
    intake.commit();
    let text = serde_json::to_string(&intake).unwrap();
    assert_eq!(serde_json::from_str::<Intake>(&text).unwrap(), intake);
}

proptest! {
    /// Whatever arrives in whatever order and batching: each seq is admitted exactly once.
    #[test]
    fn exactly_once(arrivals in proptest::collection::vec((1_u64..40, 0_u8..4), 0..200)) {
        let mut intake = Intake::default();
        let mut stored = BTreeSet::new();
        let mut batch = BTreeSet::new();
        for (seq, action) in arrivals {
            let new = is_new(admit(&mut intake, seq));
            prop_assert_eq!(new, !stored.contains(&seq) && !batch.contains(&seq));
            batch.insert(seq);
            match action {
                0 => { intake.commit(); stored.append(&mut batch); },
                1 => { intake.abort(); batch.clear(); },
                _ => {},
            }
        }
    }
}
