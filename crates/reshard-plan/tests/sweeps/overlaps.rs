//! All five methods against elements asked one by one: one dimension, every small case there is.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use reshard_plan::{Axis, Deal, ErrorKind, MAX_LEN, Method, Overlap, Side, Sides};
use reshard_testkit::{Card, Random, deal_out, full_sweep, random_deal};

/// The pieces of an overlap through the whole window, element by element: who gets each one.
fn peers(overlap: &Overlap) -> Vec<Option<u64>> {
    let mut peers = vec![None; overlap.extent() as usize];
    for (peer, piece) in overlap.pieces() {
        for index in piece {
            assert_eq!(peers[index as usize].replace(peer), None, "an element twice");
        }
    }
    peers
}

/// Judges every process of `sides`: all methods equal, and right for every element of the cards.
fn judge(sides: &Sides<'_>, here: &[Card], there: &[Card]) {
    let (from, to) = (sides.here().offset as usize, sides.there().offset as usize);
    for process in 0..sides.here().axis.procs() {
        let naive = Overlap::by(Method::Naive, sides, process).unwrap();
        for method in [Method::Classical, Method::Falls, Method::Scan, Method::Aspen] {
            let found = Overlap::by(method, sides, process).unwrap();
            assert_eq!(found, naive, "{method}, process {process} of {sides:?}");
        }
        let mut counts = vec![0_u64; sides.there().axis.procs() as usize];
        for (index, found) in peers(&naive).into_iter().enumerate() {
            // On a replicated axis everyone has all, and process 0 stands for all copies.
            let mine = sides.here().axis.is_replicated() || here[from + index].owner == process;
            let expected = mine.then_some(there[to + index].owner);
            assert_eq!(found, expected, "element {index}, process {process} of {sides:?}");
            if let Some(peer) = found {
                counts[peer as usize] += 1;
            }
        }
        let shares: Vec<_> = (0..).zip(counts).filter(|&(_, elems)| elems > 0).collect();
        assert_eq!(naive.shares(), shares, "process {process} of {sides:?}");
        assert_eq!(naive.elems(), shares.iter().map(|share| share.1).sum::<u64>());
    }
}

/// Every P, Q <= 6, r, s <= 8, every first process on both sides, every length to 64: whole arrays, and windows
/// at different offsets in arrays of 64. Returns the number of cases.
fn sweep(procs_here: u64, full: bool) -> u64 {
    let mut cases = 0;
    let mut random = Random::new(procs_here);
    let mut deals = Vec::new();
    for procs in 1..=6 {
        for block in 1..=8 {
            for first in 0..procs {
                let axes: Vec<_> =
                    (0..=64).map(|len| Axis::block_cyclic(len, procs, block, first).unwrap()).collect();
                // The first n of 64 elements are dealt as n alone would be.
                deals.push((axes, deal_out(64, procs, &Deal::Cyclic(block), first)));
            }
        }
    }
    for (here, here_cards) in deals.iter().filter(|(axes, _)| axes[0].procs() == procs_here) {
        for (there, there_cards) in &deals {
            for len in 0..=64 {
                if !full && random.within(0, 31) > 0 {
                    continue;
                }
                let whole = Sides::whole(&here[len], &there[len]).unwrap();
                judge(&whole, here_cards, there_cards);
                let mut anywhere = || random.within(0, 64 - len as u64);
                let here = Side { axis: &here[64], offset: anywhere() };
                let there = Side { axis: &there[64], offset: anywhere() };
                let window = Sides::new(here, there, len as u64).unwrap();
                judge(&window, here_cards, there_cards);
                cases += 2;
            }
        }
    }
    cases
}

/// The whole sweep has over three and a half million cases; CI runs one in 32 of them.
fn sweep_and_count(procs_here: u64) {
    let full = full_sweep();
    let cases = sweep(procs_here, full);
    // 8 r x P firsts on this side, 8 s x 21 firsts on the other, 65 lengths, whole and window.
    let whole = 8 * procs_here * 8 * 21 * 65 * 2;
    assert!(if full { cases == whole } else { cases > whole / 40 }, "{cases} cases");
    println!("{cases} cases from {procs_here} processes");
}

#[test]
fn all_methods_agree_with_the_oracle_from_1_process() {
    sweep_and_count(1);
}

#[test]
fn all_methods_agree_with_the_oracle_from_2_processes() {
    sweep_and_count(2);
}

#[test]
fn all_methods_agree_with_the_oracle_from_3_processes() {
    sweep_and_count(3);
}

#[test]
fn all_methods_agree_with_the_oracle_from_4_processes() {
    sweep_and_count(4);
}

#[test]
fn all_methods_agree_with_the_oracle_from_5_processes() {
    sweep_and_count(5);
}

#[test]
fn all_methods_agree_with_the_oracle_from_6_processes() {
    sweep_and_count(6);
}

#[test]
fn irregular_axes_agree_with_the_oracle() {
    let mut random = Random::new(7);
    for _ in 0..if full_sweep() { 400_000 } else { 20_000 } {
        let (here_len, there_len) = (random.within(0, 60), random.within(0, 60));
        let (here_procs, there_procs) = (random.within(1, 5), random.within(1, 5));
        let (here_deal, here_first) = random_deal(&mut random, here_len, here_procs);
        let (there_deal, there_first) = random_deal(&mut random, there_len, there_procs);
        let here = Axis::new(here_len, here_procs, &here_deal, here_first).unwrap();
        let there = Axis::new(there_len, there_procs, &there_deal, there_first).unwrap();
        let extent = random.within(0, here_len.min(there_len));
        let here_side = Side { axis: &here, offset: random.within(0, here_len - extent) };
        let there_side = Side { axis: &there, offset: random.within(0, there_len - extent) };
        judge(
            &Sides::new(here_side, there_side, extent).unwrap(),
            &deal_out(here_len, here_procs, &here_deal, here_first),
            &deal_out(there_len, there_procs, &there_deal, there_first),
        );
    }
}

/// At any size: an answer that owns exactly what the axis says, each element with the right peer, or an error.
#[test]
fn overlaps_at_any_size_are_right_or_refused() {
    let mut random = Random::new(3);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..if full_sweep() { 50_000 } else { 5_000 } {
        // Mostly few processes, so that most cases have an answer one can hold in memory.
        let (here_len, there_len) = (random.any_size(MAX_LEN), random.any_size(MAX_LEN));
        let mut axis = |len: u64| {
            let procs = if random.one_in(4) { random.any_size(MAX_LEN).max(1) } else { random.within(1, 40) };
            let block = random.any_size(MAX_LEN).max(1);
            Axis::block_cyclic(len, procs, block, random.any_size(procs - 1)).unwrap()
        };
        let (here, there) = (axis(here_len), axis(there_len));
        let extent = random.any_size(here_len.min(there_len));
        let here_side = Side { axis: &here, offset: random.any_size(here_len - extent) };
        let there_side = Side { axis: &there, offset: random.any_size(there_len - extent) };
        let sides = Sides::new(here_side, there_side, extent).unwrap();
        let process = random.any_size(here.procs() - 1);
        let overlap = match Overlap::new(&sides, process) {
            Ok(overlap) => overlap,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TooLarge);
                refused += 1;
                continue;
            }
        };
        answered += 1;
        // The other methods answer the same, or say that it would take them too long.
        for method in [Method::Classical, Method::Falls, Method::Scan] {
            let few = overlap.runs().iter().map(|run| u128::from(run.count)).sum::<u128>() < 1_000;
            let quick = u128::from(here.procs()) + u128::from(there.procs()) < 100_000;
            if !few || !quick {
                continue;
            }
            match Overlap::by(method, &sides, process) {
                Ok(found) => assert_eq!(found, overlap, "{method}, process {process} of {sides:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TooLarge),
            }
        }
        // Every first and last element of a sample of pieces has the owners the axes name, by 128-bit arithmetic.
        let owner = |side: Side<'_>, index: u64| {
            let (block, first) = side.axis.cyclic_parameters().unwrap();
            let wide = (u128::from(side.offset) + u128::from(index)) / u128::from(block) + u128::from(first);
            (wide % u128::from(side.axis.procs())) as u64
        };
        let mut owned = 0_u128;
        for run in overlap.runs() {
            assert!(run.len > 0 && run.count > 0);
            let last = u128::from(run.start) + u128::from(run.count - 1) * u128::from(run.stride);
            assert!(last + u128::from(run.len) <= u128::from(overlap.period()));
            for start in [run.start, last as u64] {
                for index in [start, start + run.len - 1] {
                    assert_eq!(owner(sides.here(), index), process);
                    assert_eq!(owner(sides.there(), index), run.peer);
                }
            }
            owned += u128::from(run.len) * u128::from(run.count);
        }
        // They cover all that the process owns in one period: as many as lie before its end less before its start.
        let before = |end: u64| {
            let (block, first) = here.cyclic_parameters().unwrap();
            let (block, procs) = (u128::from(block), u128::from(here.procs()));
            let turn = (u128::from(process) + procs - u128::from(first)) % procs;
            let (rounds, rest) = (u128::from(end) / (block * procs), u128::from(end) % (block * procs));
            rounds * block + rest.saturating_sub(turn * block).min(block)
        };
        let at = sides.here().offset;
        assert_eq!(owned, before(at + overlap.period()) - before(at), "{sides:?} {process}");
        assert_eq!(u128::from(overlap.elems()), before(at + extent) - before(at), "{sides:?} {process}");
    }
    assert!(answered > 9 * refused, "{answered} answered, {refused} refused");
    println!("{answered} answered, {refused} refused");
}

/// The number of runs does not grow with the array, even for blocks as different as 1 and a quarter of it.
#[test]
fn runs_are_few_whatever_the_length() {
    for len in [10_000, 10_000_000, 1 << 50] {
        let coarse = Axis::new(len, 4, &Deal::Block, 0).unwrap();
        let fine = Axis::block_cyclic(len, 5, 3, 0).unwrap();
        assert!(Overlap::new(&Sides::whole(&coarse, &fine).unwrap(), 2).unwrap().runs().len() <= 7);
        assert!(Overlap::new(&Sides::whole(&fine, &coarse).unwrap(), 2).unwrap().runs().len() <= 12);
        let uneven =
            Axis::new(len, 3, &Deal::GenBlock(vec![len / 7, len / 2, len - len / 7 - len / 2]), 0).unwrap();
        assert!(Overlap::new(&Sides::whole(&uneven, &fine).unwrap(), 1).unwrap().runs().len() <= 7);
        assert!(Overlap::new(&Sides::whole(&fine, &uneven).unwrap(), 1).unwrap().runs().len() <= 9);
    }
}

#[test]
fn slow_methods_refuse_what_would_take_hours() {
    let (here, there) =
        (Axis::block_cyclic(MAX_LEN, 4, 3, 0).unwrap(), Axis::block_cyclic(MAX_LEN, 4, 5, 0).unwrap());
    let sides = Sides::whole(&here, &there).unwrap();
    assert_eq!(Overlap::by(Method::Classical, &sides, 0).unwrap_err().kind(), ErrorKind::TooLarge);
    let coprime = Axis::block_cyclic(MAX_LEN, 1 << 20, (1 << 20) + 1, 0).unwrap();
    let sides = Sides::whole(&coprime, &there).unwrap();
    for method in [Method::Naive, Method::Classical] {
        assert_eq!(Overlap::by(method, &sides, 0).unwrap_err().kind(), ErrorKind::TooLarge);
    }
    assert!(Overlap::new(&sides, 0).is_ok());
}

#[test]
fn windows_that_do_not_fit_are_refused() {
    let axis = Axis::block_cyclic(10, 2, 3, 0).unwrap();
    let side = |offset| Side { axis: &axis, offset };
    assert!(Sides::new(side(4), side(0), 6).is_ok());
    assert_eq!(Sides::new(side(5), side(0), 6).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(Sides::new(side(0), side(u64::MAX), 6).unwrap_err().kind(), ErrorKind::OutOfRange);
    let sides = Sides::whole(&axis, &axis).unwrap();
    assert_eq!(Overlap::new(&sides, 2).unwrap_err().kind(), ErrorKind::OutOfRange);
}
