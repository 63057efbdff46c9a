//! The only room with unsafe code: raw memory, vector instructions, and threads that outlive a borrow.

pub(crate) mod crew;
