//! Classes of equal messages between two block-cyclic axes, and the length of any message in O(1).
//!
//! After Desprez et al., extended to windows and to block sizes with a common factor. Element `x` of a block of
//! sender `p` is element `y` of a block of receiver `q` only if `y - x = p r - q s + shift` modulo
//! `gcd(P r, Q s)`. How many `(x, y)` have a given difference `z = y - x` is a trapezoid in `z` (the paper's
//! Figure 1), so all pairs with the same residue exchange messages of one length. Senders and receivers count
//! here from the first process on.

use crate::axis::{Axis, gcd};
use crate::overlap::Sides;

/// The classes of a pair of block-cyclic axes: which pairs of processes exchange messages of equal length.
///
/// ```
/// use reshard_plan::{Axis, Classes, Sides};
/// let (from, to) = (Axis::block_cyclic(240, 16, 3, 0)?, Axis::block_cyclic(240, 16, 5, 0)?);
/// let classes = Classes::new(&Sides::whole(&from, &to)?).unwrap();
/// assert_eq!((classes.period(), classes.count()), (240, 7));
/// assert_eq!(classes.message_len(1, 4), 2); // row 1, column 4 of the paper's Table 1
/// assert_eq!(classes.message_len(1, 5), 0);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    from: BlockCyclic,
    to: BlockCyclic,
    /// gcd(r, s): differences of one class are all congruent modulo this.
    common: i128,
    /// gcd(P r, Q s), in units of `common`.
    modulus: i128,
    /// Destination index minus source index, modulo gcd(P r, Q s): whole units of `common`, and the rest.
    shift: i128,
    rest: i128,
}

/// Processes, block and first process of one block-cyclic axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockCyclic {
    procs: i128,
    block: i128,
    first: i128,
}

impl BlockCyclic {
    fn new(axis: &Axis) -> Option<Self> {
        let (block, first) = axis.cyclic_parameters()?;
        Some(Self { procs: axis.procs().into(), block: block.into(), first: first.into() })
    }

    fn turn(&self, process: u64) -> i128 {
        (i128::from(process) - self.first).rem_euclid(self.procs)
    }
}

impl Classes {
    /// The classes of two axes, sender `here`; `None` unless both are block-cyclic.
    pub fn new(sides: &Sides<'_>) -> Option<Self> {
        let (from, to) = (BlockCyclic::new(sides.here().axis)?, BlockCyclic::new(sides.there().axis)?);
        let common = gcd(from.block, to.block);
        let modulus = gcd(from.procs * (from.block / common), to.procs * (to.block / common));
        let delta = i128::from(sides.there().offset) - i128::from(sides.here().offset);
        let shift = delta.div_euclid(common).rem_euclid(modulus);
        Some(Self { from, to, common, modulus, shift, rest: delta.rem_euclid(common) })
    }

    /// Period of the communication pattern in elements: `lcm(P r, Q s)`.
    pub fn period(&self) -> u128 {
        let (from, to) = (self.from.procs * (self.from.block / self.common), self.to.procs * self.to.block);
        // At most 2^62 * 2^62 * 2^62 in theory: saturate rather than wrap.
        ((from / self.modulus) as u128).saturating_mul(to as u128)
    }

    /// Number of classes with messages: at most `r + s - 1` (one more if a window shifts the blocks by less than
    /// their common factor), at most `gcd(P r, Q s)`.
    pub fn count(&self) -> u128 {
        self.residues().min(self.modulus) as u128
    }

    /// True if every sender has a message for every receiver.
    pub fn is_complete(&self) -> bool {
        self.residues() >= self.modulus
    }

    /// Number of pairs of processes that exchange anything in one period: each class has equally many.
    pub fn pairs(&self) -> u128 {
        // P Q / modulus is whole, because both P r and Q s are multiples of the modulus and r, s are coprime.
        let of_class =
            |gcd: i128| (self.from.procs / gcd) as u128 * (self.to.procs / (self.modulus / gcd)) as u128;
        of_class(gcd(self.from.procs, self.modulus)).saturating_mul(self.count())
    }

    /// The class of a pair, from 0; `None` if it exchanges nothing.
    pub fn class(&self, sender: u64, receiver: u64) -> Option<u128> {
        let class = self.residue(sender, receiver);
        (class < self.residues()).then_some(class as u128)
    }

    /// Elements in each message of a class, for one period.
    pub fn volume(&self, class: u128) -> u128 {
        // Differences below -r + 1 and above s - 1 have no pair of elements; classes past the modulus fold back.
        let Some(first) = i128::try_from(class).ok().filter(|&class| class < self.count() as i128) else {
            return 0;
        };
        let step = self.common * self.modulus;
        let least = self.common * (first - self.back()) + self.rest;
        let (r, s) = (self.from.block, self.to.block);
        let height = r.min(s);
        let corners = [(r, 1), (r - height, -1), (height - s, -1), (-s, 1)];
        let terms = (s - least + step - 1).div_euclid(step).max(0);
        corners.iter().map(|&(corner, sign)| sign * ramp_sum(least + corner, step, terms)).sum::<i128>()
            as u128
    }

    /// Elements that a sender sends to a receiver in one period, in constant time.
    pub fn message_len(&self, sender: u64, receiver: u64) -> u128 {
        self.class(sender, receiver).map_or(0, |class| self.volume(class))
    }

    fn residue(&self, sender: u64, receiver: u64) -> i128 {
        let (r, s) = (self.from.block / self.common, self.to.block / self.common);
        let difference =
            (self.from.turn(sender) * r) % self.modulus - (self.to.turn(receiver) * s) % self.modulus;
        (difference + self.shift + self.back()).rem_euclid(self.modulus)
    }

    /// Number of classes below difference 0.
    fn back(&self) -> i128 {
        self.from.block / self.common - i128::from(self.rest == 0)
    }

    /// Number of residues with messages, before folding at the modulus.
    fn residues(&self) -> i128 {
        self.to.block / self.common + self.back()
    }
}

/// The sum of `max(0, first + t * step)` for `t` from 0 to `terms - 1`.
fn ramp_sum(first: i128, step: i128, terms: i128) -> i128 {
    let skipped = if first >= 0 { 0 } else { (-first + step - 1) / step };
    let terms = terms - skipped;
    if terms <= 0 {
        return 0;
    }
    let first = first + skipped * step;
    terms * first + step * (terms * (terms - 1) / 2)
}
