//! What one rank does, for engines in which every rank is a process of its own.
//!
//! Engines in one process see the parts of all ranks; between processes a rank has its own, enters them with
//! [`Data::enter_own`](crate::engine::Data::enter_own), and does its share with one of these. How bytes get from one process
//! to the other is the engine's business.

pub use crate::engine::messages::program::Step;
pub use crate::kernel::direct::Direct;
pub use crate::kernel::hands::{Cursor, Parcel};
pub use crate::kernel::porter::Porter;
pub use crate::kernel::relay::{Bundle, Outgoing, Relay};
