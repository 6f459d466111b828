//! Connections that are cut in the middle of a message, or die without a word.

use gswarm_trial::{Trial, rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::fleet::Fleet;
use crate::proxy::Proxy;
use crate::site::Site;

/// Agents whose connections are cut, side by side: after a cut each waits a second.
const CUT: usize = 7;

#[test]
fn streams_that_are_cut_or_hang_lose_nothing_and_double_nothing() {
    let mut trial = Trial::new("streams cut at random bytes, and one that hangs half open");
    let seed = rand::random();
    println!("seed {seed}");
    trial.seeds = 1;
    let mut random = StdRng::seed_from_u64(seed);
    // Multiples of the agents.
    let cuts = rounds(70, 1_001);
    let mut fleet = Fleet::new(Site::simulated());
    let port = fleet.site.port();
    let each = i64::try_from(cuts).unwrap() / i64::try_from(CUT).unwrap();
    let mut proxies: Vec<Proxy> =
        (0..CUT).map(|_| Proxy::start(port, each, random.random())).collect();
    // The last one is never cut, but hangs.
    proxies.push(Proxy::start(port, 0, 0));
    fleet.agents =
        proxies.iter().zip(1..).map(|(proxy, number)| proxy.agent(&fleet.site, number)).collect();
    let hanging = &proxies[CUT];
    let node = format!("node{}", CUT + 1);
    let site = &fleet.site;
    let stored =
        || site.ask(async |host| host.node(&node).await).map_or(0, |node| node.records_stored);
    site.until("records before the hang", || (stored() > 20).then_some(()));
    hanging.hang();
    let before = stored();
    fleet.read_spools();

    let site = &fleet.site;
    site.until_within(2, "a fresh connection", || (hanging.accepted() > 1).then_some(()));
    site.until("its records", || {
        let node = site.ask(async |host| host.node(&node).await).ok()?;
        (node.connected && node.records_stored > before + 20).then_some(())
    });
    site.until("an end of the dead connection", || hanging.host_let_go().then_some(()));
    let done = || proxies.iter().map(Proxy::cuts).sum::<u64>();
    site.until_within(40, "all cuts", || (done() >= cuts).then_some(()));
    trial.rounds = done() + 1;
    trial.faults = done() + 1;
    fleet.settle();
    fleet.finish(&mut trial);
}
