//! What a plan says of its sources and targets, against what goes from one to the other.

#![allow(clippy::unwrap_used)]

use reshard_plan::{Layout, Move, Order, Plan, Source, Traffic, Window};

#[test]
fn places_are_the_sources_something_comes_from() {
    let cases = [
        ("4x3/2x5 of 40x33", "2x5/7x2 of 40x33", vec![0, 1]),
        ("3x4/2x1 ranks=9,3,4,5,1,2,0,7,8,6,20,21 of 25x30", "2x2/3x8 of 30x25", vec![1, 0]),
        ("(gen_block(3,0,9,1)) on 4 of 13", "3/2 rank-order=col of 13", vec![0]),
        ("2x2x3/1x2x1 rank-order=col of 6x9x7", "3x1x2/2x2x2 of 9x7x6", vec![1, 2, 0]),
    ];
    for (from, to, axes) in cases {
        let layout = |text: &str| Layout::new(text.parse().unwrap(), Order::RowMajor);
        let (from, to) = (layout(from), layout(to));
        let shape: Vec<u64> = axes.iter().map(|&dim: &usize| from.distribution().shape()[dim]).collect();
        let window = Window::of(&from.distribution().shape()).permuted(&axes);
        assert_eq!(shape, to.distribution().shape());
        let plan = Plan::new(vec![Move::windowed(from, to, window).unwrap()]).unwrap();
        let array = &plan.arrays()[0];
        let traffic = Traffic::new(array.wanted().problem());
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            let parts: Vec<usize> = array.parts(target).collect();
            assert_eq!(parts.len(), target.places());
            for (source, Source { rank, .. }) in array.sources().iter().enumerate() {
                assert_eq!(array.source_of(*rank), Some(source));
                let place = parts.iter().position(|&part| part == source);
                assert_eq!(array.place(target, source), place);
                assert_eq!(place.is_some(), traffic.elems(*rank, target.rank).unwrap() > 0);
                let places = array.places_of(target, *rank);
                if *rank == target.rank {
                    assert_eq!(places, 0..parts.len());
                } else {
                    assert!(places.eq(place));
                }
            }
        }
        assert_eq!((array.source_of(1_000), array.place(&array.targets()[0], 1_000)), (None, None));
    }
}
