//! A plan as messages between ranks: packed into fragments, sent by an engine, unpacked.

pub mod messages;
pub mod one_rank;
pub mod pack;
pub mod run;
pub mod slots;

pub use messages::{Message, MessageSet};
pub use one_rank::RankPacker;
pub use pack::{Cursor, MessageRange};
pub use run::{Exchange, RankHandle};
pub use slots::SlotPool;
