//! Slow oracles, cases and generators that judge every fast path of reshard.
//!
//! An oracle here deals elements out one by one, like cards, and remembers who got which: no division, no
//! modulus, no formula it could share with the code it judges. Generators are seeded, so a failing case is
//! named by its number and comes back.

pub mod allocations;
pub mod conformance;
mod dealer;
pub mod hosts;
pub mod parts;
mod random;

pub use dealer::{Card, deal_copies, deal_out, messages, taken_copies};
pub use random::{Random, random_deal};

/// True if the whole sweep was asked for (`cargo xtask test --full`), false for the slice that CI runs.
pub fn full_sweep() -> bool {
    std::env::var_os("RESHARD_FULL").is_some()
}
