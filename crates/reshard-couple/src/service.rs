//! What is done with frames, whoever moves them: a thread (`io.rs`), or the program itself while it waits (`messages.rs`).

use crate::frame::Head;
use crate::greeting::Channel;
use crate::slots::SlotMemory;
use crate::stream::Stream;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A connection of this process. Numbers are not used again.
pub type ConnectionId = usize;

/// Numbers below stand for what is no connection.
pub const FIRST: ConnectionId = 3;

/// What is done with frames. All of it is called with the lock held, so none of it takes long.
pub trait Service: Send + 'static {
    /// Somebody connected who knows the secret. An error closes the connection.
    fn greeted(&mut self, id: ConnectionId, channel: Channel) -> std::result::Result<(), String>;

    /// A frame is to be read: returns memory for what follows the head. An error closes the connection.
    fn room(&mut self, id: ConnectionId, head: &Head) -> std::result::Result<Vec<u8>, String>;

    /// A frame has come, with the right checksum. An error closes the connection.
    fn received(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>) -> std::result::Result<(), String>;

    /// The other process shares memory with this one, or, if there is none, cannot. An error closes the connection.
    fn shares(
        &mut self,
        id: ConnectionId,
        memory: Option<Arc<SlotMemory>>,
    ) -> std::result::Result<(), String>;

    /// The next frame to be sent, if there is one.
    fn next(&mut self, id: ConnectionId) -> Option<(Head, Vec<u8>)>;

    /// A frame was given to the system.
    fn sent(&mut self, id: ConnectionId, head: &Head, body: Vec<u8>);

    /// A connection is closed.
    fn closed(&mut self, id: ConnectionId, why: &str);

    /// A stranger was turned away.
    fn refused(&mut self, why: String);

    /// What the thread is asked to do, since it was asked the last time.
    fn orders(&mut self) -> &mut Orders;
}

/// What the thread is asked to do.
#[derive(Default)]
pub struct Orders {
    /// Connections that were made elsewhere, and have been greeted.
    pub(crate) attach: Vec<(ConnectionId, Stream)>,
    /// Connections that have something to send.
    pub(crate) write: BTreeSet<ConnectionId>,
    /// Connections to be closed once all is sent that is waiting there.
    pub(crate) close: BTreeSet<ConnectionId>,
    pub(crate) stop: bool,
    pub(crate) numbers: ConnectionId,
}

impl Orders {
    /// Takes a connection over.
    pub fn attach(&mut self, stream: Stream) -> ConnectionId {
        let id = self.new_connection();
        self.attach.push((id, stream));
        id
    }

    pub fn write(&mut self, id: ConnectionId) {
        self.write.insert(id);
    }

    pub fn close(&mut self, id: ConnectionId) {
        self.close.insert(id);
        self.write.insert(id);
    }

    /// A number for a connection.
    pub fn new_connection(&mut self) -> ConnectionId {
        self.numbers += 1;
        self.numbers + FIRST - 1
    }
}
