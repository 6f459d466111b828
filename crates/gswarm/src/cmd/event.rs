//! `gswarm events`.

use gswarm_api::body::EventsBody;
use gswarm_api::timestamp::parse_moment;
use gswarm_types::Clock;

use super::Context;
use crate::args::EventsArgs;
use crate::clock::SystemClock;
use crate::output::{Page, Table, Tone};
use crate::units;

pub(super) async fn events(context: &Context, args: &EventsArgs) -> anyhow::Result<()> {
    if let Some(since) = &args.since {
        parse_moment(since, SystemClock.wall())?;
    }
    let body = context.client()?.events(args.since.as_deref()).await?;
    context.output.show(&body, page)
}

fn page(body: &EventsBody) -> Page {
    if body.events.is_empty() {
        return Page::default().line("nothing happened");
    }
    let mut table = Table::new(["TIME", "SEVERITY", "NODE", "KIND", "DEVICE", "MESSAGE"]);
    for event in &body.events {
        table.row([
            units::time(&event.time),
            severity(&event.severity),
            event.node.clone().unwrap_or_else(|| "host".to_owned()),
            event.kind.clone(),
            units::or_dash(event.device.clone(), |device| device),
            event.message.clone(),
        ]);
    }
    Page::default().table(table)
}

fn severity(word: &str) -> String {
    match word {
        "error" => Tone::Bad.paint(word),
        "warning" => Tone::Warning.paint(word),
        _ => Tone::Quiet.paint(word),
    }
}
