//! The agents' stream: reads always, hands on in order, says what the recorder says.

mod introduction;
mod session;

use std::pin::Pin;

use futures_util::Stream;
use gswarm_wire::{MESSAGE_BYTES_MAX, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::caller::Caller;
use crate::handle::Handle;

/// Messages to an agent that may wait in its connection.
const OUT_QUEUE_MAX: usize = 64;

/// The gRPC service that agents dial.
#[derive(Debug, Clone)]
pub(crate) struct RecorderService {
    handle: Handle,
}

impl RecorderService {
    pub(crate) fn server(handle: Handle) -> v1::recorder_server::RecorderServer<Self> {
        v1::recorder_server::RecorderServer::new(Self { handle })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl v1::recorder_server::Recorder for RecorderService {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<v1::HostMessage, Status>> + Send>>;

    async fn stream(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let (out, messages) = mpsc::channel(OUT_QUEUE_MAX);
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
        let inbound = request.into_inner();
        let handle = self.handle.clone();
        let stop = handle.stop_token().clone();
        self.handle.tasks().spawn(async move {
            let failed = tokio::select! {
                ended = session::drive(handle, caller, inbound, out.clone()) => ended.err(),
                () = stop.cancelled() => Some(Status::unavailable("the host is stopping")),
            };
            if let Some(status) = failed {
                // The agent may be gone already.
                let _gone = out.try_send(Err(status));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }
}

/// A failure as gRPC says it.
pub(crate) fn to_status(failure: &gswarm_api::Failure) -> Status {
    Status::new(tonic::Code::from_i32(failure.code.grpc_code()), failure.message.clone())
}
