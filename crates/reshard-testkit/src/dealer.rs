//! Elements dealt out one by one: the oracle of who owns what, and of what each owes another.

use reshard_plan::{Deal, Distribution, Window};
use std::collections::BTreeMap;

/// Where one element of an axis went: to which process, as which of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// The process that got it.
    pub owner: u64,
    /// How many it had got before.
    pub local: u64,
}

/// Deals `len` elements to `procs` processes by a rule, one by one.
pub fn deal_out(len: u64, procs: u64, deal: &Deal, first: u64) -> Vec<Card> {
    let mut hands = vec![0_u64; procs as usize];
    let mut cards = Vec::with_capacity(len as usize);
    let mut give = |owner: u64| {
        let local = &mut hands[owner as usize];
        cards.push(Card { owner, local: *local });
        *local += 1;
    };
    let mut round_robin = |block: u64| {
        let (mut owner, mut left) = (first, block);
        for _ in 0..len {
            if left == 0 {
                left = block;
                owner = if owner + 1 == procs { 0 } else { owner + 1 };
            }
            give(owner);
            left -= 1;
        }
    };
    match deal {
        Deal::Cyclic(block) => round_robin(*block),
        Deal::Block => {
            // The smallest block with which one round is enough.
            let block = (1..).find(|block| block * procs >= len).unwrap_or(1);
            round_robin(block);
        }
        Deal::Whole => (0..len).for_each(|_| give(0)),
        Deal::GenBlock(sizes) => {
            for (owner, &size) in (0..).zip(sizes) {
                (0..size).for_each(|_| give(owner));
            }
        }
        Deal::Cuts(pieces) => {
            for piece in pieces {
                (0..piece.len).for_each(|_| give(piece.owner));
            }
        }
    }
    cards
}

/// Every message of a redistribution as (sender, receiver) -> elements, by asking each element of the window.
/// The window is given again in plain numbers, since [`Window`] keeps its own to itself.
pub fn messages(
    from: &Distribution,
    to: &Distribution,
    shape: &[u64],
    from_at: &[u64],
    to_at: &[u64],
    axes: &[usize],
) -> (Window, BTreeMap<(u64, u64), u64>) {
    let window = Window::of(shape).from(from_at).to(to_at).permuted(axes);
    let hands = |distribution: &Distribution| -> Vec<Vec<Card>> {
        let pattern = distribution.pattern();
        (0..distribution.dims())
            .map(|dim| {
                let (axis, first) = (&distribution.axes()[dim], pattern.first()[dim]);
                deal_out(axis.len(), axis.procs(), &pattern.deals()[dim], first)
            })
            .collect()
    };
    let (from_hands, to_hands) = (hands(from), hands(to));
    let mut messages = BTreeMap::new();
    let mut index = vec![0; shape.len()];
    if shape.contains(&0) {
        return (window, messages);
    }
    loop {
        let sender: Vec<u64> =
            (0..shape.len()).map(|d| from_hands[d][(from_at[d] + index[d]) as usize].owner).collect();
        let receiver: Vec<u64> = axes
            .iter()
            .enumerate()
            .map(|(j, &d)| to_hands[j][(to_at[j] + index[d]) as usize].owner)
            .collect();
        let ranks = from.grid().rank(&sender).zip(to.grid().rank(&receiver));
        *messages.entry(ranks.expect("owners lie on their grids")).or_insert(0) += 1;
        let Some(d) = (0..shape.len()).rev().find(|&d| index[d] + 1 < shape[d]) else { break };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
    (window, messages)
}
