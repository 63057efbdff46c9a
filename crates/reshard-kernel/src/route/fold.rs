//! Short rows: the fast axis and the slow axis next to it, folded into one.
//!
//! An array of three or four dimensions has rows of a hundred bytes, and going from one row to the next takes longer than copying
//! it. But how the pieces of all rows along the last slow axis lie is known when the route is made, so these rows are one
//! longer row: its pieces have offsets in the parts of all pairs of peers, of the slow axis and of the fast one. That holds
//! wherever in the array the row is, if the parts of a pair have equal strides.

use super::{OuterAxis, SourcePart};
use reshard_plan::{Loop, Stretch};

/// Rows of a destination that have at most this many bytes are folded.
const MAX_FOLDED_ROW_BYTES: u64 = 512;

/// Rows are folded if at most so many follow each other evenly, on average: from one to the next of those it is one addition.
/// The shortest rows are always folded.
const MAX_EVEN_ROWS: u64 = 16;
const MAX_FOLDED_EVEN_ROW_BYTES: u64 = 160;

/// Pieces of a folded loop at most, and the bytes of its round.
const MAX_FOLDED_PIECES: u64 = 2048;
const MAX_FOLDED_BYTES: u64 = 1 << 15;

/// Stretches of a slow axis that are loops of their own have at least so many rows, on average.
const MIN_LONG_ROWS: u64 = 32;

/// Pieces of all folded loops of a destination at most.
const MAX_FOLDED_PIECES_OF_ALL: usize = 1 << 14;

/// Rows of at most this many bytes and pieces are one round.
const MAX_SHORT_ROW_BYTES: u64 = 4096;
const MAX_SHORT_ROW_PIECES: u64 = 1024;

/// The rows of a route: what lies along its fast axis.
pub(super) struct Rows {
    /// Bytes of an element.
    pub elem: u64,
    /// The loops of each destination, with the peers of the route.
    pub loops: Vec<Vec<Loop>>,
    /// Strides of each destination in elements: slow axes in order, then the fast one.
    pub to_strides: Vec<Vec<u64>>,
    /// Number of peers.
    pub peers: usize,
}

impl Rows {
    /// Folds slow axes into the rows while these are short. The parts' strides are those of the slow axes in order, then of the
    /// fast one.
    pub fn fold(&mut self, outer: &mut Vec<OuterAxis>, parts: &mut [SourcePart]) {
        while let Some(slow) = outer.last() {
            let Some(loops) = self.folded(slow, outer.len() - 1, parts) else { return };
            self.peers *= slow.track.peers().len();
            self.loops = loops;
            outer.pop();
            // The fast axis takes the place of the slow one.
            let fast = outer.len();
            parts.iter_mut().for_each(|part| part.strides[fast] = part.strides[fast + 1]);
            for strides in &mut self.to_strides {
                strides.remove(fast);
            }
        }
    }

    /// Returns the loops of each destination with the slow axis number `axis` folded in.
    fn folded(&self, slow: &OuterAxis, axis: usize, parts: &[SourcePart]) -> Option<Vec<Vec<Loop>>> {
        let stretches = |each: &Loop| each.rounds.saturating_mul(each.stretches.len() as u64);
        let stretches = slow.track.loops().iter().map(stretches).fold(0, u64::saturating_add);
        let most = match slow.track.elems() / MAX_EVEN_ROWS > stretches {
            true => MAX_FOLDED_EVEN_ROW_BYTES,
            false => MAX_FOLDED_ROW_BYTES,
        };
        let strides = self.strides(slow, axis, parts)?;
        let of_destination = |(loops, to_strides): (&Vec<Loop>, &Vec<u64>)| {
            let row = one_round(loops, self.elem)?;
            if row.elems.checked_mul(self.elem)? > most {
                return None;
            }
            let (mut folded, mut pieces) = (Vec::new(), 0);
            for each in slow.track.loops() {
                let known = folded.len();
                self.fold_loop(each, &row, &strides, to_strides[axis], &mut folded)?;
                pieces += folded[known..].iter().map(|each: &Loop| each.stretches.len()).sum::<usize>();
                if pieces > MAX_FOLDED_PIECES_OF_ALL {
                    return None;
                }
            }
            Some(folded)
        };
        self.loops.iter().zip(&self.to_strides).map(of_destination).collect()
    }

    /// Appends a loop of the slow axis with a row at each position. If that has too many pieces, but its stretches are long, each
    /// of them is a loop, with a row in each round.
    fn fold_loop(
        &self,
        each: &Loop,
        row: &Loop,
        strides: &[u64],
        to_stride: u64,
        folded: &mut Vec<Loop>,
    ) -> Option<()> {
        let elems = each.elems.checked_mul(row.elems)?;
        let pieces = each.elems.checked_mul(row.stretches.len() as u64)?;
        let fits = pieces <= MAX_FOLDED_PIECES && elems.checked_mul(self.elem)? <= MAX_FOLDED_BYTES;
        let place = |slow: &Stretch, k: u64, piece: &Stretch| {
            let peer = slow.peer as usize * self.peers + piece.peer as usize;
            Stretch {
                at: (slow.at + k) * row.elems + piece.at,
                len: piece.len,
                peer: peer as u32,
                from: (slow.from + k) * strides[peer] + piece.from,
                to: (slow.to + k) * to_stride + piece.to,
                from_step: slow.from_step * strides[peer],
                to_step: slow.to_step * to_stride,
            }
        };
        if fits {
            let mut stretches: Vec<Stretch> = Vec::with_capacity(pieces as usize);
            for (slow, k) in each.stretches.iter().flat_map(|slow| (0..slow.len).map(move |k| (slow, k))) {
                for next in row.stretches.iter().map(|piece| place(slow, k, piece)) {
                    match stretches.last_mut() {
                        Some(last) if goes_on(last, &next) => last.len += next.len,
                        _ => stretches.push(next),
                    }
                }
            }
            folded.push(Loop { at: each.at * row.elems, rounds: each.rounds, elems, stretches });
            return Some(());
        }
        if each.rounds > 1 || each.elems / (each.stretches.len() as u64) < MIN_LONG_ROWS {
            return None;
        }
        for slow in &each.stretches {
            let in_round = |piece: &Stretch| {
                let first = place(slow, 0, piece);
                // The stride of a part with one row may be anything.
                let [from_step, to_step] = match slow.len {
                    1 => [0, 0],
                    _ => [strides[first.peer as usize], to_stride],
                };
                Stretch { at: piece.at, from_step, to_step, ..first }
            };
            let stretches = row.stretches.iter().map(in_round).collect();
            let at = (each.at + slow.at) * row.elems;
            folded.push(Loop { at, rounds: slow.len, elems: row.elems, stretches });
        }
        Some(())
    }

    /// Returns the stride along a slow axis of each pair of peers, in elements, if it is the same in all their parts.
    fn strides(&self, slow: &OuterAxis, axis: usize, parts: &[SourcePart]) -> Option<Vec<u64>> {
        let pairs = self.peers * slow.track.peers().len();
        let mut strides = vec![None; pairs];
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| part.source != u32::MAX) {
            let stride = part.strides[axis] as u64;
            let known = strides[number % pairs].get_or_insert(stride);
            if *known != stride || !stride.is_multiple_of(self.elem) {
                return None;
            }
        }
        Some(strides.into_iter().map(|stride| stride.unwrap_or(0) / self.elem).collect())
    }
}

/// True if a stretch continues another one on both sides.
fn goes_on(last: &Stretch, next: &Stretch) -> bool {
    let alike = |s: &Stretch| (s.peer, s.from_step, s.to_step);
    alike(last) == alike(next) && last.from + last.len == next.from && last.to + last.len == next.to
}

/// Returns the loops of a short row as one loop of one round; `None` if they have too many pieces or bytes.
pub(super) fn one_round(loops: &[Loop], elem: u64) -> Option<Loop> {
    let pieces = loops.iter().map(|each| each.rounds.saturating_mul(each.stretches.len() as u64));
    let elems = loops.last().map_or(0, |last| last.at + last.rounds * last.elems);
    if pieces.fold(0, u64::saturating_add) > MAX_SHORT_ROW_PIECES
        || elems.checked_mul(elem)? > MAX_SHORT_ROW_BYTES
    {
        return None;
    }
    let mut stretches = Vec::new();
    for each in loops {
        for round in 0..each.rounds {
            let piece = |s: &Stretch| Stretch { from_step: 0, to_step: 0, ..each.in_round(s, round) };
            stretches.extend(each.stretches.iter().map(piece));
        }
    }
    Some(Loop { at: 0, rounds: 1, elems, stretches })
}
