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

/// Deals `len` elements to `procs` processes by a rule, one by one. Of a replicated axis, `*` on several processes, these are the
/// cards of the first; see [`deal_copies`].
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

/// Deals `len` elements to `procs` processes by a rule, one by one: all cards of each element, several if every process gets one.
pub fn deal_copies(len: u64, procs: u64, deal: &Deal, first: u64) -> Vec<Vec<Card>> {
    let cards = deal_out(len, procs, deal, first).into_iter();
    match deal {
        Deal::Whole => cards.map(|card| (0..procs).map(|owner| Card { owner, ..card }).collect()).collect(),
        _ => cards.map(|card| vec![card]).collect(),
    }
}

/// For each rank of the destination the copy of the source that it takes: a coordinate for each replicated dimension of the source.
///
/// A rank of the source takes its own. For others the receivers are counted, those axes fastest that take a replicated dimension,
/// on a counter with as many digits as it needs, each of which counts to the number of copies; the sum of the digits, again
/// counted so, is the number of the copy, whose first coordinate runs fastest.
pub fn taken_copies(
    from: &Distribution,
    to: &Distribution,
    axes: &[usize],
) -> BTreeMap<u64, Vec<Option<u64>>> {
    let replicated: Vec<bool> =
        hands(from).iter().map(|cards| cards.iter().any(|cards| cards.len() > 1)).collect();
    let extents = from.grid().extents();
    let mut copies = vec![vec![None; replicated.len()]];
    for d in (0..replicated.len()).rev().filter(|&d| replicated[d]) {
        let with = |at: u64| {
            let copies = copies.iter().cloned();
            copies.map(move |mut copy| {
                copy[d] = Some(at);
                copy
            })
        };
        copies = (0..extents[d]).flat_map(|at| with(at).collect::<Vec<_>>()).collect();
        copies.sort_by_key(|copy| copy.iter().rev().copied().collect::<Vec<_>>());
    }
    // The destination's axes, those first that take a replicated dimension, by that dimension; the others by theirs.
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&j| (!replicated[axes[j]], axes[j]));
    let (mut coords, mut digits) = (vec![0; axes.len()], vec![0_usize]);
    let mut taken = BTreeMap::new();
    loop {
        let rank = to.grid().rank(&coords).expect("a place of the grid");
        let own = from.grid().coords(rank);
        let mut turn = 0;
        for _ in 0..digits.iter().sum() {
            turn = if turn + 1 == copies.len() { 0 } else { turn + 1 };
        }
        let copy = match own {
            Some(own) => own.into_iter().zip(&replicated).map(|(at, &is)| is.then_some(at)).collect(),
            None => copies[turn].clone(),
        };
        taken.insert(rank, copy);
        let Some(next) = order.iter().position(|&j| coords[j] + 1 < to.grid().extents()[j]) else {
            return taken;
        };
        order[..next].iter().for_each(|&j| coords[j] = 0);
        coords[order[next]] += 1;
        let place = digits.iter().position(|&digit| digit + 1 < copies.len()).unwrap_or(digits.len());
        if copies.len() > 1 {
            digits[..place].fill(0);
            digits.resize(digits.len().max(place + 1), 0);
            digits[place] += 1;
        }
    }
}

/// The cards of each element of each axis.
fn hands(distribution: &Distribution) -> Vec<Vec<Vec<Card>>> {
    let pattern = distribution.pattern();
    (0..distribution.dims())
        .map(|dim| {
            let (axis, first) = (&distribution.axes()[dim], pattern.first()[dim]);
            deal_copies(axis.len(), axis.procs(), &pattern.deals()[dim], first)
        })
        .collect()
}

/// Every combination of one card for each axis, as coordinates.
fn owners<'a>(cards: impl Iterator<Item = &'a Vec<Card>>) -> Vec<Vec<u64>> {
    cards.fold(vec![Vec::new()], |before, cards| {
        let with = |coords: &Vec<u64>| -> Vec<Vec<u64>> {
            cards.iter().map(|card| [coords.as_slice(), &[card.owner]].concat()).collect()
        };
        before.iter().flat_map(with).collect()
    })
}

/// Every message of a redistribution as (sender, receiver) -> elements, by asking each element of the window. Every copy of
/// the destination gets each element once, from the copy of the source that it takes.
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
    let (from_hands, to_hands) = (hands(from), hands(to));
    let taken = taken_copies(from, to, axes);
    let mut messages = BTreeMap::new();
    let mut index = vec![0; shape.len()];
    if shape.contains(&0) {
        return (window, messages);
    }
    loop {
        let senders = owners((0..shape.len()).map(|d| &from_hands[d][(from_at[d] + index[d]) as usize]));
        let receivers =
            owners(axes.iter().enumerate().map(|(j, &d)| &to_hands[j][(to_at[j] + index[d]) as usize]));
        for receiver in receivers {
            let receiver = to.grid().rank(&receiver).expect("owners lie on their grids");
            let is_taken = |sender: &&Vec<u64>| {
                sender.iter().zip(&taken[&receiver]).all(|(at, copy)| copy.is_none_or(|copy| copy == *at))
            };
            let sender = senders.iter().find(is_taken).and_then(|sender| from.grid().rank(sender));
            *messages.entry((sender.expect("one copy is taken"), receiver)).or_insert(0) += 1;
        }
        let Some(d) = (0..shape.len()).rev().find(|&d| index[d] + 1 < shape[d]) else { break };
        index[d] += 1;
        index[d + 1..].fill(0);
    }
    (window, messages)
}
