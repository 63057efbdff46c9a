//! A plan as messages between ranks: packed, sent on by somebody, unpacked.

pub mod messages;
pub mod one_rank;
pub mod pack;
pub mod run;
pub mod slots;

pub use messages::{Cargo, Message};
pub use one_rank::Porter;
pub use pack::{Cursor, Parcel};
pub use run::{Round, Station};
pub use slots::Freight;
