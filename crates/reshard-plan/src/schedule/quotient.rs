//! The small graph behind a block-cyclic axis: who meets whom, in which class, as which copy.
//!
//! With `r, s` divided by their common factor, sender turn `p` and receiver turn `q` belong to class
//! `k = (p r - q s + shift) mod g`, `g = gcd(P r, Q s)`, and exchange a message iff `k < classes`. The graph is a
//! `g0`-fold cover of classes joining `s' = gcd(s, P)` row types with `r' = gcd(r, Q)` column types, each row in
//! `A = P / (s' g0)` copies and each column in `B = Q / (r' g0)`. So a process lists its peers by one modular inverse
//! and additions, whatever the size of the other side.

use super::core::inverse;
use crate::axis::gcd;
use crate::error::{Error, Result};
use crate::overlap::Sides;

/// One axis of a block-cyclic redistribution, reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quotient {
    senders: Turns,
    receivers: Turns,
    modulus: u64,
    /// Added to `p r - q s` so that classes with messages begin at 0.
    shift: u64,
    /// Classes with messages; the modulus if every pair has one.
    pub classes: u64,
    /// Every sender has a message for every receiver.
    pub complete: bool,
    pub row_types: u64,
    pub column_types: u64,
    pub row_copies: u64,
    pub column_copies: u64,
    /// Positions of a row of one type, and of a column: turns this far apart are copies of each other.
    row_span: u64,
    column_span: u64,
    /// `(s / s')^-1` modulo the column span, `(r / r')^-1` modulo the row span.
    sender_inverse: u64,
    receiver_inverse: u64,
}

/// One side: its processes, its block without the common factor, who has the first turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    procs: u64,
    block: u64,
    first: u64,
}

impl Turns {
    fn turn(&self, process: u64) -> u64 {
        if process >= self.first { process - self.first } else { process + self.procs - self.first }
    }

    fn process(&self, turn: u64) -> u64 {
        if turn >= self.procs - self.first { turn - (self.procs - self.first) } else { turn + self.first }
    }
}

/// A message as the quotient sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub class: u64,
    pub row_copy: u64,
    pub column_copy: u64,
}

impl Quotient {
    /// The quotient of one axis, senders `here`; `None` unless both sides are block-cyclic.
    pub fn new(sides: &Sides<'_>) -> Result<Option<Self>> {
        let (here, there) = (sides.here(), sides.there());
        let Some((r, first_sender)) = here.axis.cyclic_parameters() else { return Ok(None) };
        let Some((s, first_receiver)) = there.axis.cyclic_parameters() else { return Ok(None) };
        let common = gcd(r, s);
        let senders = Turns { procs: here.axis.procs(), block: r / common, first: first_sender };
        let receivers = Turns { procs: there.axis.procs(), block: s / common, first: first_receiver };
        let round = |side: &Turns| side.procs.checked_mul(side.block).filter(|&round| round < 1 << 62);
        let (Some(here_round), Some(there_round)) = (round(&senders), round(&receivers)) else {
            return Err(Error::too_large(
                "a round of these layouts, processes times block, is longer than 2^62 elements; \
                 choose smaller blocks or grids to schedule it",
            ));
        };
        let modulus = gcd(here_round, there_round);
        let delta = i128::from(there.offset) - i128::from(here.offset);
        let (units, rest) = (delta.div_euclid(common.into()), delta.rem_euclid(common.into()));
        // Where blocks do not even align in units of their common factor there is one class more.
        let back = senders.block - u64::from(rest == 0);
        let shift = (units + i128::from(back)).rem_euclid(modulus.into()) as u64;
        let found = receivers.block + back;
        let row_types = gcd(receivers.block, senders.procs);
        let column_types = gcd(senders.block, receivers.procs);
        let fold = gcd(senders.procs / row_types, receivers.procs / column_types);
        let (row_span, column_span) = (row_types * fold, column_types * fold);
        Ok(Some(Self {
            modulus,
            shift,
            classes: found.min(modulus),
            complete: found >= modulus,
            row_types,
            column_types,
            row_copies: senders.procs / row_span,
            column_copies: receivers.procs / column_span,
            row_span,
            column_span,
            sender_inverse: inverse((receivers.block / row_types) % column_span, column_span),
            receiver_inverse: inverse((senders.block / column_types) % row_span, row_span),
            senders,
            receivers,
        }))
    }

    /// Most messages a sender has.
    pub fn row_degree(&self) -> u64 {
        self.column_copies * self.classes.div_ceil(self.row_types)
    }

    /// Most messages a receiver has.
    pub fn column_degree(&self) -> u64 {
        self.row_copies * self.classes.div_ceil(self.column_types)
    }

    /// The link between two processes; `None` if they exchange nothing.
    pub fn link(&self, sender: u64, receiver: u64) -> Option<Link> {
        let (p, q) = (self.senders.turn(sender), self.receivers.turn(receiver));
        let (ahead, behind) = (self.row_value(p), self.column_value(q));
        let class = if ahead >= behind { ahead - behind } else { ahead + self.modulus - behind };
        let link = Link { class, row_copy: p / self.row_span, column_copy: q / self.column_span };
        (class < self.classes).then_some(link)
    }

    /// `(p r + shift) mod g`: the class is this less the receiver's value.
    fn row_value(&self, p: u64) -> u64 {
        (p * self.senders.block % self.modulus + self.shift) % self.modulus
    }

    /// `q s mod g`.
    fn column_value(&self, q: u64) -> u64 {
        q * self.receivers.block % self.modulus
    }

    /// Every receiver a sender has a message for, with its link: class by class.
    pub fn receivers_of(&self, sender: u64, mut visit: impl FnMut(u64, Link)) {
        let p = self.senders.turn(sender);
        let (value, row_copy) = (self.row_value(p), p / self.row_span);
        let mut class = value % self.row_types;
        while class < self.classes {
            let behind = if value >= class { value - class } else { value + self.modulus - class };
            let mut q = mul_mod(behind / self.row_types, self.sender_inverse, self.column_span);
            for column_copy in 0..self.column_copies {
                visit(self.receivers.process(q), Link { class, row_copy, column_copy });
                q += self.column_span;
            }
            class += self.row_types;
        }
    }

    /// Every sender that has a message for a receiver, with its link: class by class.
    pub fn senders_of(&self, receiver: u64, mut visit: impl FnMut(u64, Link)) {
        let q = self.receivers.turn(receiver);
        let column_copy = q / self.column_span;
        // p r = class + value modulo g.
        let value = {
            let value = self.column_value(q);
            if value >= self.shift { value - self.shift } else { value + self.modulus - self.shift }
        };
        let mut class = (self.column_types - value % self.column_types) % self.column_types;
        while class < self.classes {
            let ahead = (class + value) % self.modulus;
            let mut p = mul_mod(ahead / self.column_types, self.receiver_inverse, self.row_span);
            for row_copy in 0..self.row_copies {
                visit(self.senders.process(p), Link { class, row_copy, column_copy });
                p += self.row_span;
            }
            class += self.column_types;
        }
    }
}

/// `a * b mod m` without overflow.
fn mul_mod(a: u64, b: u64, m: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product % m,
        None => (u128::from(a) * u128::from(b) % u128::from(m)) as u64,
    }
}
