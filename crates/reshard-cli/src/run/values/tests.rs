//! Tests of the verification itself: arrays moved element by element must pass, and one wrong byte must not.

#![allow(clippy::unwrap_used)]

use super::*;
use reshard::Window;
use reshard_plan::Distribution;

struct Case {
    from: Layout,
    to: Layout,
    problem: Problem,
    elem_bytes: usize,
}

/// An element, and its position in memory.
type Place = (Vec<u64>, Range<usize>);

impl Case {
    fn new(
        from: (&str, MemoryOrder),
        to: (&str, MemoryOrder),
        window: Option<Window>,
        elem_bytes: usize,
    ) -> Self {
        let layout =
            |(text, order): (&str, MemoryOrder)| Layout::new(text.parse::<Distribution>().unwrap(), order);
        let (from, to) = (layout(from), layout(to));
        let window = window.unwrap_or_else(|| Window::of(&from.distribution().shape()));
        let sides = (from.distribution().clone(), to.distribution().clone());
        let problem = Problem::windowed(sides.0, sides.1, window).unwrap();
        Self { from, to, problem, elem_bytes }
    }

    /// The position of an element in memory that holds all parts by ascending rank.
    fn place(&self, layout: &Layout, spans: &[usize], global: &[u64]) -> Range<usize> {
        let (rank, address) = layout.locate(global).unwrap();
        let ranks = layout.distribution().grid().sorted_ranks();
        let before: usize = spans[..ranks.binary_search(&rank).unwrap()].iter().sum();
        let at = before + address as usize * self.elem_bytes;
        at..at + self.elem_bytes
    }

    /// The destination after a move element by element, and the positions of all its elements.
    fn moved(&self) -> (Vec<u8>, Vec<Place>) {
        let source = Values::of_source(&self.from, self.elem_bytes).unwrap();
        let before = Values::before(&self.to, self.elem_bytes).unwrap();
        let (from_spans, to_spans) = (source.spans(), before.spans());
        let mut from = vec![0; from_spans.iter().sum()];
        let mut to = vec![0; to_spans.iter().sum()];
        source.fill(&mut from, 3);
        before.fill(&mut to, 2);
        for at in indices(self.problem.shape()) {
            let source: Vec<u64> = at.iter().zip(self.problem.from_offset()).map(|(a, b)| a + b).collect();
            let axes = self.problem.axes().iter().zip(self.problem.to_offset());
            let target: Vec<u64> = axes.map(|(&axis, offset)| at[axis] + offset).collect();
            let source = self.place(&self.from, &from_spans, &source);
            let target = self.place(&self.to, &to_spans, &target);
            to[target].copy_from_slice(&from[source]);
        }
        let places = indices(&self.to.distribution().shape()).into_iter().map(|global| {
            let place = self.place(&self.to, &to_spans, &global);
            (global, place)
        });
        (to, places.collect())
    }
}

fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    let count: u64 = shape.iter().product();
    let index = |mut number: u64| {
        let mut index = vec![0; shape.len()];
        for (at, len) in index.iter_mut().zip(shape) {
            (*at, number) = (number % len, number / len);
        }
        index
    };
    (0..count).map(index).collect()
}

fn cases() -> Vec<Case> {
    let (row, col) = (MemoryOrder::RowMajor, MemoryOrder::ColMajor);
    let window = Window::of(&[5, 7]).from(&[3, 1]).to(&[2, 4]).permuted(&[1, 0]);
    vec![
        Case::new(("3/2 of 41", col), ("2/5 of 41", row), None, 1),
        Case::new(("2x2/3x4 of 13x11", col), ("3x1/2x5 of 13x11", row), None, 8),
        Case::new(("2x2/3x4 of 13x11", row), ("2x1/2x5 ranks=3,1 of 12x14", col), Some(window), 12),
        Case::new(
            ("2x1x2/2x2x2 of 4x5x6", col),
            ("1x2x2/3x1x2 of 6x4x5", row),
            Some(Window::of(&[4, 5, 6]).permuted(&[2, 0, 1])),
            2,
        ),
        Case::new(
            ("2/1 of 20", col),
            ("(cuts(3@1,9@0,8@1)) on 2 of 20", col),
            Some(Window::of(&[9]).from(&[8]).to(&[1])),
            20,
        ),
    ]
}

#[test]
fn what_was_moved_by_hand_passes() {
    for case in cases() {
        let after = Values::after(&case.to, case.elem_bytes, &case.problem).unwrap();
        assert_eq!(after.check(&case.moved().0, 2).unwrap(), None);
    }
}

#[test]
fn every_wrong_byte_is_found_and_named() {
    for case in cases() {
        let after = Values::after(&case.to, case.elem_bytes, &case.problem).unwrap();
        let (mut moved, places) = case.moved();
        for (global, place) in places {
            let byte = place.start + global.iter().sum::<u64>() as usize % case.elem_bytes;
            moved[byte] ^= 0x10;
            let wrong = after.check(&moved, 2).unwrap().unwrap();
            assert_eq!(wrong.global, global);
            assert_eq!(wrong.found, moved[place.clone()]);
            moved[byte] ^= 0x10;
            assert_eq!(wrong.expected, moved[place]);
            let expected = format!("element {} of the destination, on rank {}", index(&global), wrong.rank);
            assert!(wrong.to_string().starts_with(&expected), "{wrong}");
        }
    }
}

#[test]
fn a_destination_nothing_came_to_is_wrong() {
    for case in cases() {
        let before = Values::before(&case.to, case.elem_bytes).unwrap();
        let mut memory = vec![0; before.spans().iter().sum()];
        before.fill(&mut memory, 1);
        let after = Values::after(&case.to, case.elem_bytes, &case.problem).unwrap();
        assert!(after.check(&memory, 1).unwrap().unwrap().in_window);
    }
}
