//! WebSocket readers: one that is timed, and those that do not read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{SinkExt, StreamExt};
use gswarm_api::Target;
use gswarm_api::body::{ClientMessage, ServerMessage, Subscribe};
use gswarm_api::timestamp::parse_rfc3339;
use gswarm_types::Clock;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::rig::Rig;
use crate::clock::SystemClock;

/// Nodes that the timed reader watches.
const WATCHED: usize = 20;
/// A reader that lost its host tries again after this long.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What a reader saw: microseconds from the time of a record to its arrival.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Vec<u64>>>);

impl Seen {
    fn add(&self, latency_us: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(latency_us);
    }

    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Times what a reader of some nodes sees; nothing when the host's clock is another machine's.
pub(super) fn watch_latency(rig: &Rig, readers: &mut JoinSet<()>) -> Seen {
    let seen = Seen::default();
    if rig.is_own() {
        let (target, seen) = (rig.target().clone(), seen.clone());
        readers.spawn(async move {
            loop {
                // The host may be down: that is part of some scenarios.
                let _ended = read(&target, &seen).await;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
    }
    seen
}

async fn read(target: &Target, seen: &Seen) -> anyhow::Result<()> {
    let mut socket = open(target).await?;
    let nodes = Some((0..WATCHED).map(|number| format!("bench{number:05}")).collect());
    let subscribe = ClientMessage::Subscribe(Subscribe { nodes, events: Some(false) });
    socket.send(Message::text(serde_json::to_string(&subscribe)?)).await?;
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else { continue };
        if let ServerMessage::Values(values) = serde_json::from_str(&text)? {
            let late = SystemClock.wall() - parse_rfc3339(&values.time)?;
            seen.add(u64::try_from(late.0).unwrap_or(0));
        }
    }
    Ok(())
}

pub(super) async fn open(target: &Target) -> anyhow::Result<Socket> {
    let url = format!("ws://{}:{}/api/v1/live", target.host(), target.port());
    let (socket, _) =
        tokio_tungstenite::connect_async(url).await.context("cannot open a WebSocket")?;
    Ok(socket)
}
