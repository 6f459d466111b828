//! The WebSocket at `/api/v1/live`.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use gswarm_api::body::{ClientMessage, LiveNode, LiveValues, NodeHealth, ServerMessage, Subscribe};
use gswarm_api::{ErrorBody, timestamp};
use gswarm_types::Micros;
use tokio::sync::broadcast::error::RecvError;

use super::door::By;
use crate::caller::Caller;
use crate::handle::Handle;
use crate::live::{Happening, NodeValues};
use crate::recorder::{Snapshot, event_body};

/// The last values of a node without a connection are shown for this long.
const GONE_SHOWN_FOR: Micros = Micros::from_secs(600);
/// How often the token of a reader is looked at.
const RECHECK_EVERY: Duration = Duration::from_secs(10);
/// The largest message of a reader.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// A reader that does not take a message for this long is let go.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Live values and events over a WebSocket
#[utoipa::path(get, path = "/api/v1/live", operation_id = "live", responses(
    (status = 101, description = "The connection becomes a WebSocket; see docs/api.md"),
    (status = "4XX", body = ErrorBody)))]
pub(super) async fn open(
    State(handle): State<Handle>,
    By(caller): By,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, super::answer::Refusal> {
    let upgrade = upgrade.map_err(|rejection| {
        let message = format!("this is a WebSocket: {}", rejection.body_text());
        super::answer::Refusal(gswarm_api::Failure::invalid(message))
    })?;
    let stop = handle.stop_token().clone();
    let tasks = handle.tasks().clone();
    let serve = move |mut socket: WebSocket| async move {
        let (code, reason) = tokio::select! {
            ended = watch(handle, caller, &mut socket) => ended,
            () = stop.cancelled() => (close_code::AWAY, "the host is stopping"),
        };
        // The reader may be gone; then nobody misses the frame.
        let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let _gone = tokio::time::timeout(CLOSE_TIMEOUT, socket.send(frame)).await;
    };
    // Counted among the host's tasks, so that a stop waits for the closing frame.
    Ok(upgrade
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .on_upgrade(move |socket| tasks.track_future(serve(socket))))
}

/// How long a closing frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What one reader wants to see.
struct Filter {
    nodes: Option<Vec<String>>,
    events: bool,
}

impl Filter {
    fn wants(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.iter().any(|wanted| wanted == node))
    }
}

/// Returns with the code and the reason of the end.
async fn watch(handle: Handle, caller: Caller, socket: &mut WebSocket) -> (u16, &'static str) {
    const GONE: (u16, &str) = (close_code::NORMAL, "");
    let mut happenings = handle.listen();
    let mut filter = Filter { nodes: None, events: true };
    // Tables the reader knows; a node with another one gets a snapshot first.
    let mut known = std::collections::HashMap::new();
    let hello = ServerMessage::Hello {
        version: handle.version().to_owned(),
        simulated: handle.is_simulated(),
        insecure: handle.is_insecure(),
    };
    if !send(socket, &hello).await || !snapshot(&handle, &caller, socket, &filter, &mut known).await
    {
        return GONE;
    }
    let mut recheck = tokio::time::interval(RECHECK_EVERY);
    loop {
        let fine = tokio::select! {
            _ = recheck.tick() => {
                if !handle.access().is_still_good(&caller) {
                    return (close_code::POLICY, "the token is no longer good: log in again");
                }
                true
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                    Ok(ClientMessage::Subscribe(Subscribe { nodes, events })) => {
                        filter = Filter { nodes, events: events.unwrap_or(true) };
                        snapshot(&handle, &caller, socket, &filter, &mut known).await
                    },
                    Err(_) => return (close_code::POLICY, "only `subscribe` messages are understood"),
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_))) => true,
                Some(Ok(Message::Close(_))) => {
                    // Reading on sends the answer to the close.
                    let _answered = tokio::time::timeout(CLOSE_TIMEOUT, socket.recv()).await;
                    return GONE;
                },
                Some(Err(_)) | None => return GONE,
            },
            happening = happenings.recv() => match happening {
                Ok(Happening::Values(values)) if filter.wants(&values.name) => {
                    tell(&handle, &caller, socket, &filter, &mut known, &values).await
                },
                Ok(Happening::Event(event)) if filter.events => {
                    let body = event_body(&event);
                    send(socket, &ServerMessage::Event(body)).await
                },
                Ok(_) => true,
                Err(RecvError::Lagged(dropped)) => {
                    send(socket, &ServerMessage::Lagged { dropped }).await
                        && snapshot(&handle, &caller, socket, &filter, &mut known).await
                },
                Err(RecvError::Closed) => false,
            },
        };
        if !fine {
            return GONE;
        }
    }
}

type KnownTables = std::collections::HashMap<String, gswarm_types::TableDigest>;

async fn tell(
    handle: &Handle,
    caller: &Caller,
    socket: &mut WebSocket,
    filter: &Filter,
    known: &mut KnownTables,
    values: &NodeValues,
) -> bool {
    let digest = values.table.digest();
    if known.get(&values.name) != Some(&digest) {
        return snapshot(handle, caller, socket, filter, known).await;
    }
    let message = ServerMessage::Values(LiveValues {
        node: values.name.clone(),
        table: digest.to_string(),
        time: timestamp::rfc3339(values.time),
        cells: values.cells.clone(),
    });
    send(socket, &message).await
}

async fn snapshot(
    handle: &Handle,
    caller: &Caller,
    socket: &mut WebSocket,
    filter: &Filter,
    known: &mut KnownTables,
) -> bool {
    let Ok(snapshot) = handle.snapshot(caller).await else { return false };
    let nodes = nodes_of(&snapshot, filter, known);
    send(socket, &ServerMessage::Snapshot { nodes }).await
}

fn nodes_of(snapshot: &Snapshot, filter: &Filter, known: &mut KnownTables) -> Vec<LiveNode> {
    let wanted = snapshot.nodes.iter().filter(|node| filter.wants(&node.name));
    wanted
        .map(|node| {
            // Old values of nodes that are gone would be most of the message, in time.
            let is_fresh = |values: &&NodeValues| {
                node.connected || snapshot.now - values.time < GONE_SHOWN_FOR
            };
            let latest = node.latest.as_deref().filter(is_fresh);
            let table = latest.map(|values| values.table.clone()).unwrap_or_default();
            known.insert(node.name.clone(), table.digest());
            LiveNode {
                node: node.name.clone(),
                node_id: node.id.to_string(),
                health: health_word(node.health).to_owned(),
                simulated: node.simulated,
                table: table.digest().to_string(),
                devices: table
                    .devices
                    .iter()
                    .map(|d| (d.id.0.clone(), d.scope.as_str().to_owned(), d.index, d.name.clone()))
                    .collect(),
                columns: table.columns.iter().map(|c| (c.device, c.metric.to_string())).collect(),
                time: latest.map(|values| timestamp::rfc3339(values.time)),
                cells: latest.map_or_else(Vec::new, |values| values.cells.clone()),
            }
        })
        .collect()
}

fn health_word(health: NodeHealth) -> &'static str {
    match health {
        NodeHealth::Healthy => "healthy",
        NodeHealth::Unhealthy => "unhealthy",
        NodeHealth::Stopped => "stopped",
        NodeHealth::Unseen => "unseen",
        NodeHealth::Removed => "removed",
    }
}

/// False when the reader is gone or too slow.
async fn send(socket: &mut WebSocket, message: &ServerMessage) -> bool {
    let Ok(text) = serde_json::to_string(message) else { return false };
    let sending = socket.send(Message::Text(text.into()));
    matches!(tokio::time::timeout(SEND_TIMEOUT, sending).await, Ok(Ok(())))
}
