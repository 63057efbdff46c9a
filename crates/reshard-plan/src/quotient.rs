//! The quotient graph of a block-cyclic axis: which types of processes exchange messages, of which class, in how many copies.
//!
//! With `r, s` divided by their common factor, sender turn `p` and receiver turn `q` belong to class
//! `k = (p r - q s + shift) mod g`, `g = gcd(P r, Q s)`, and exchange a message iff `k < classes`. The graph is a
//! `g0`-fold cover of classes joining `s' = gcd(s, P)` row types with `r' = gcd(r, Q)` column types, each row in
//! `A = P / (s' g0)` copies and each column in `B = Q / (r' g0)`. So a process lists its peers by one modular inverse
//! and additions, whatever the size of the other side.

use crate::axis::{gcd, inverse};
use crate::error::{Error, Result};
use crate::overlap::Sides;

/// One axis of a block-cyclic redistribution as a graph of process types: its size does not depend on the number of processes.
///
/// ```
/// use reshard_plan::{Axis, Quotient, Sides};
/// let (from, to) = (Axis::block_cyclic(360, 12, 5, 0)?, Axis::block_cyclic(360, 40, 3, 0)?);
/// let small = Quotient::new(&Sides::whole(&from, &to)?)?.unwrap();
/// assert_eq!((small.row_types(), small.column_types(), small.positions()), (3, 5, 4));
/// assert_eq!((small.row_copies(), small.column_copies()), (1, 2));
/// let (sender, receiver) = small.pair(2, 3, 0, 1);
/// assert_eq!(small.link(sender, receiver).unwrap().class, 2);
/// # Ok::<(), reshard_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotient {
    senders: Turns,
    receivers: Turns,
    modulus: u64,
    /// Added to `p r - q s` so that classes with messages begin at 0.
    shift: u64,
    classes: u64,
    complete: bool,
    row_types: u64,
    column_types: u64,
    row_copies: u64,
    column_copies: u64,
    /// Turns this far apart are copies of each other.
    row_span: u64,
    column_span: u64,
    /// `(s / s')^-1` modulo the column span, `(r / r')^-1` modulo the row span, `r^-1` modulo the row types.
    sender_inverse: u64,
    receiver_inverse: u64,
    row_inverse: u64,
}

/// One side: its processes, its block without the common factor, and the process that has the first turn.
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

/// A message as an edge of the quotient graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassMessage {
    /// The class of the message.
    pub class: u64,
    /// The copy of its row type that the sender is.
    pub row_copy: u64,
    /// The copy of its column type that the receiver is.
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
            row_inverse: inverse(senders.block % row_types, row_types),
            senders,
            receivers,
        }))
    }

    /// Number of classes with messages.
    pub fn classes(&self) -> u64 {
        self.classes
    }

    /// True if every sender has a message for every receiver.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of sender types: class `k` belongs to type `k mod row_types`.
    pub fn row_types(&self) -> u64 {
        self.row_types
    }

    /// Number of receiver types.
    pub fn column_types(&self) -> u64 {
        self.column_types
    }

    /// Number of copies of a sender: senders that are alike in every class.
    pub fn row_copies(&self) -> u64 {
        self.row_copies
    }

    /// Number of copies of a receiver: receivers that are alike in every class.
    pub fn column_copies(&self) -> u64 {
        self.column_copies
    }

    /// Number of groups of alike senders of each type; each class matches them one to one with groups of receivers.
    pub fn positions(&self) -> u64 {
        self.row_span / self.row_types
    }

    /// One pair of a class as (sender, receiver): the given copies of the groups that the class matches at `position`.
    /// Numbers past the end wrap around.
    pub fn pair(&self, class: u64, position: u64, row_copy: u64, column_copy: u64) -> (u64, u64) {
        let class = class % self.modulus;
        // p r = class - shift modulo s', once for each position.
        let aim = (class % self.row_types + self.row_types - self.shift % self.row_types) % self.row_types;
        let p = mul_mod(aim, self.row_inverse, self.row_types) + position % self.positions() * self.row_types;
        let value = self.row_value(p);
        let behind = if value >= class { value - class } else { value + self.modulus - class };
        let q = mul_mod(behind / self.row_types, self.sender_inverse, self.column_span);
        let p = p + row_copy % self.row_copies * self.row_span;
        let q = q + column_copy % self.column_copies * self.column_span;
        (self.senders.process(p), self.receivers.process(q))
    }

    /// The most messages of any sender.
    pub fn row_degree(&self) -> u64 {
        self.column_copies * self.classes.div_ceil(self.row_types)
    }

    /// The most messages of any receiver.
    pub fn column_degree(&self) -> u64 {
        self.row_copies * self.classes.div_ceil(self.column_types)
    }

    /// The message between two processes; `None` if they exchange nothing.
    pub fn link(&self, sender: u64, receiver: u64) -> Option<ClassMessage> {
        let (p, q) = (self.senders.turn(sender), self.receivers.turn(receiver));
        let (ahead, behind) = (self.row_value(p), self.column_value(q));
        let class = if ahead >= behind { ahead - behind } else { ahead + self.modulus - behind };
        let link = ClassMessage { class, row_copy: p / self.row_span, column_copy: q / self.column_span };
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
    pub fn receivers_of(&self, sender: u64, mut visit: impl FnMut(u64, ClassMessage)) {
        let p = self.senders.turn(sender);
        let (value, row_copy) = (self.row_value(p), p / self.row_span);
        let mut class = value % self.row_types;
        while class < self.classes {
            let behind = if value >= class { value - class } else { value + self.modulus - class };
            let mut q = mul_mod(behind / self.row_types, self.sender_inverse, self.column_span);
            for column_copy in 0..self.column_copies {
                visit(self.receivers.process(q), ClassMessage { class, row_copy, column_copy });
                q += self.column_span;
            }
            class += self.row_types;
        }
    }

    /// Every sender that has a message for a receiver, with its link: class by class.
    pub fn senders_of(&self, receiver: u64, mut visit: impl FnMut(u64, ClassMessage)) {
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
                visit(self.senders.process(p), ClassMessage { class, row_copy, column_copy });
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
