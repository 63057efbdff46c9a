//! A small seeded generator, so that a failing case is a number one can run again.

use reshard_plan::{Deal, Piece};
use std::sync::OnceLock;

/// The variable that changes all seeds at once, so that every run of the tests can draw other cases.
const SEED: &str = "RESHARD_SEED";

/// SplitMix64: tiny, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    /// What a fuzzer decides, from the last to the first: taken before anything is drawn.
    decided: Vec<u8>,
}

impl Random {
    /// Starts a sequence of numbers, equal for equal seeds under equal `RESHARD_SEED`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ seed_of_all(), decided: Vec::new() }
    }

    /// The first numbers are these bytes, two for each, so that a fuzzer can change one decision at a time.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self { state: 0, decided: bytes.iter().rev().copied().collect() }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        if let (Some(low), high) = (self.decided.pop(), self.decided.pop()) {
            return u64::from(u16::from_le_bytes([low, high.unwrap_or(0)]));
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        match (most - least).checked_add(1) {
            Some(count) => least + self.bits() % count,
            None => self.bits(),
        }
    }

    /// A number up to `most` whose number of bits is uniform, so that small and huge ones are equally likely.
    pub fn any_size(&mut self, most: u64) -> u64 {
        let bits = self.within(0, 64 - u64::from(most.leading_zeros()));
        let value = if bits == 0 { 0 } else { self.bits() >> (64 - bits) };
        value.min(most)
    }

    /// One time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.within(1, n) == 1
    }
}

/// What `RESHARD_SEED` adds to every seed, far from the seeds that tests choose: nothing where it is not set.
fn seed_of_all() -> u64 {
    static SEED_OF_ALL: OnceLock<u64> = OnceLock::new();
    *SEED_OF_ALL.get_or_init(|| match std::env::var(SEED) {
        Ok(text) => match text.parse::<u64>() {
            Ok(seed) => Random { state: seed, decided: Vec::new() }.bits(),
            Err(_) => panic!("{SEED} is {text:?}, and a number without sign is expected"),
        },
        Err(_) => 0,
    })
}

/// Some rule for an axis of `len` elements on `procs` processes, and a first process that fits it.
pub fn random_deal(random: &mut Random, len: u64, procs: u64) -> (Deal, u64) {
    let first = random.within(0, procs - 1);
    match random.within(0, 5) {
        // On more than one process: replicated.
        0 => (Deal::Whole, 0),
        1 => (Deal::Block, first),
        2 => {
            let mut cuts: Vec<u64> = (1..procs).map(|_| random.within(0, len)).collect();
            cuts.sort_unstable();
            cuts.push(len);
            let sizes = cuts.iter().scan(0, |from, &to| Some(to - std::mem::replace(from, to))).collect();
            (Deal::GenBlock(sizes), 0)
        }
        3 => {
            let mut pieces = Vec::new();
            let mut left = len;
            while left > 0 {
                let len = random.within(1, left.min(1 + len / 3));
                pieces.push(Piece { len, owner: random.within(0, procs - 1) });
                left -= len;
            }
            if pieces.is_empty() {
                pieces.push(Piece { len: 0, owner: 0 });
            }
            (Deal::Cuts(pieces), 0)
        }
        _ => (Deal::Cyclic(random.within(1, 8.max(len / 2))), first),
    }
}
