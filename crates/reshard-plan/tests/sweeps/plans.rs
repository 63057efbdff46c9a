//! What a plan says of its sources and targets, against what goes from one to the other.

#![allow(clippy::unwrap_used)]

use reshard_plan::{
    Layout, MemoryOrder, Move, Plan, Source, Stretch, Target, Track, Traffic, Triangle, Window,
};
use reshard_testkit::Random;
use reshard_testkit::conformance::{Case, Kinds};
use std::ops::Range;

#[test]
fn places_are_the_sources_something_comes_from() {
    let cases = [
        ("4x3/2x5 of 40x33", "2x5/7x2 of 40x33", vec![0, 1]),
        ("3x4/2x1 ranks=9,3,4,5,1,2,0,7,8,6,20,21 of 25x30", "2x2/3x8 of 30x25", vec![1, 0]),
        ("(gen_block(3,0,9,1)) on 4 of 13", "3/2 rank-order=col of 13", vec![0]),
        ("2x2x3/1x2x1 rank-order=col of 6x9x7", "3x1x2/2x2x2 of 9x7x6", vec![1, 2, 0]),
    ];
    for (from, to, axes) in cases {
        let layout = |text: &str| Layout::new(text.parse().unwrap(), MemoryOrder::RowMajor);
        let (from, to) = (layout(from), layout(to));
        let shape: Vec<u64> = axes.iter().map(|&dim: &usize| from.distribution().shape()[dim]).collect();
        let window = Window::of(&from.distribution().shape()).permuted(&axes);
        assert_eq!(shape, to.distribution().shape());
        let plan = Plan::new(vec![Move::windowed::<f64>(from, to, window).unwrap()]).unwrap();
        let array = &plan.arrays()[0];
        let traffic = Traffic::new(array.wanted().problem());
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            let parts: Vec<usize> = array.sources_of(target).collect();
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

/// Runs are what moves, element by element.
#[test]
fn memory_runs_are_all_elements_once() {
    let mut random = Random::new(11);
    let kinds = Kinds { procs: 4, dims: 1..5, own_strides: true, ..Kinds::default() };
    let (mut pairs, mut long) = (0, 0);
    for _ in 0..1500 {
        let moving = Case::random(&mut random, &kinds).moving;
        let plan = Plan::new(vec![moving]).unwrap();
        let array = &plan.arrays()[0];
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            for place in 0..target.places() {
                let source = &array.sources()[array.source_at(target, place).unwrap()];
                let mut expected = vec![(0, 0)];
                for (dim, peer) in target.peers_at(place).into_iter().enumerate() {
                    let track = target.tracks[dim].with_peer(peer);
                    let offsets: Vec<(u64, u64)> = track
                        .pieces()
                        .flat_map(|piece| (0..piece.len).map(move |k| (piece.from + k, piece.to + k)))
                        .map(|(from, to)| {
                            (from.wrapping_mul(source.strides[dim]), to.wrapping_mul(target.strides[dim]))
                        })
                        .collect();
                    let each = |&(from, to): &(u64, u64)| -> Vec<(u64, u64)> {
                        offsets.iter().map(|by| (from + by.0, to + by.1)).collect()
                    };
                    expected = expected.iter().flat_map(each).collect();
                }
                expected.sort_by_key(|&(_, to)| to);
                let mut runs = array.memory_runs(target, place).unwrap();
                assert_eq!(array.memory_run_count(target, place), Some(runs.len() as u64));
                runs.sort_by_key(|run| run.to);
                let found: Vec<(u64, u64)> =
                    runs.iter().flat_map(|run| (0..run.elems).map(|k| (run.from + k, run.to + k))).collect();
                assert_eq!(found, expected, "{:?}", array.wanted());
                pairs += 1;
                long += u64::from(runs.len() < expected.len());
            }
        }
    }
    assert!(pairs > 3000 && long > 1000, "{pairs} pairs, {long} with runs of several elements");
}

/// What a plan for some ranks says is what the plan for all says of them, and its peers are the ranks of the messages.
#[test]
fn a_plan_for_some_ranks_is_a_part_of_the_plan_for_all() {
    let mut random = Random::new(5);
    let kinds = Kinds { procs: 4, dims: 1..4, ..Kinds::default() };
    for _ in 0..1000 {
        let moving = Case::random(&mut random, &kinds).moving;
        let all = Plan::new(vec![moving.clone()]).unwrap();
        let sum: u64 = all.arrays()[0].targets().iter().map(Target::elems).sum();
        assert_eq!(all.bytes(), sum * moving.elem_bytes(), "{moving:?}");
        let ranks = all.ranks();
        let hosted: Vec<u64> = ranks.iter().copied().filter(|_| random.one_in(3)).collect();
        let some = Plan::for_ranks(vec![moving.clone()], &hosted).unwrap();
        assert_eq!((some.bytes(), some.hosted()), (all.bytes(), Some(&hosted[..])));
        let of = |plan: &Plan, rank: u64| {
            let array = &plan.arrays()[0];
            let target = array.targets().iter().find(|target| target.rank == rank);
            (array.source_of(rank).map(|source| array.sources()[source].clone()), target.cloned())
        };
        for &rank in &ranks {
            let expected = if hosted.contains(&rank) { of(&all, rank) } else { (None, None) };
            assert_eq!(of(&some, rank), expected, "rank {rank} of {hosted:?}: {moving:?}");
        }
        assert!(!some.lists_peers() && all.lists_peers() && all.hosted().is_none());
        let some = some.with_peers().unwrap();
        assert!(some.lists_peers());
        // Without a triangle, which leaves out messages but not peers along the axes.
        let traffic = Traffic::new(moving.problem());
        let shares = |from: u64, to: u64| traffic.elems(from, to).is_ok_and(|elems| elems > 0);
        for &rank in &ranks {
            let (source, target) = of(&all, rank);
            let listed_source = hosted.contains(&rank) || hosted.iter().any(|&to| shares(rank, to));
            let listed_target = hosted.contains(&rank) || hosted.iter().any(|&from| shares(from, rank));
            let expected = (source.filter(|_| listed_source), target.filter(|_| listed_target));
            assert_eq!(of(&some, rank), expected, "rank {rank} of {hosted:?}: {moving:?}");
        }
        for target in some.arrays()[0].targets().iter().filter(|target| target.elems() > 0) {
            let sources = (0..target.places()).map(|place| some.arrays()[0].source_at(target, place));
            assert!(!hosted.contains(&target.rank) || sources.into_iter().all(|source| source.is_some()));
        }
        let everyone = Plan::for_ranks(vec![moving.clone()], &ranks).unwrap();
        assert_eq!(everyone.arrays(), all.arrays());
    }
}

/// A box of the destination, cut out of a plan, is what planning a smaller window gives: element by element.
#[test]
fn a_box_of_a_plan_is_the_plan_of_a_smaller_window() {
    let mut random = Random::new(9);
    let kinds = Kinds { procs: 4, dims: 1..4, ..Kinds::default() };
    let (mut cut, mut triangles) = (0, 0);
    for _ in 0..1500 {
        let moving = Case::random(&mut random, &kinds).moving;
        let problem = moving.problem();
        let region: Vec<Range<u64>> = problem
            .to()
            .axes()
            .iter()
            .map(|axis| {
                let start = random.within(0, axis.len());
                // Half of them whole, some of them empty, some beyond the end.
                if random.one_in(2) { 0..axis.len() } else { start..random.within(start, axis.len() + 3) }
            })
            .collect();
        let plan = Plan::new(vec![moving.clone()]).unwrap();
        let found = plan.within(&region).unwrap();
        // The window of the box, in the words of a caller.
        let (mut shape, mut from, mut to) =
            (problem.shape().to_vec(), problem.from_offset().to_vec(), vec![]);
        for (dim, range) in region.iter().enumerate() {
            let (source, offset) = (problem.axes()[dim], problem.to_offset()[dim]);
            let inside: Vec<u64> = (offset..offset + shape[source]).filter(|at| range.contains(at)).collect();
            let first = inside.first().copied().unwrap_or(offset);
            from[source] += first - offset;
            shape[source] = inside.len() as u64;
            to.push(first);
        }
        let window = Window::of(&shape).from(&from).to(&to).permuted(problem.axes());
        let smaller = Move::windowed::<u8>(moving.from().clone(), moving.to().clone(), window).unwrap();
        let smaller = smaller.of_bytes(moving.elem_bytes()).unwrap();
        let smaller = match moving.triangle() {
            Some(part) => {
                triangles += 1;
                let row = (from[0] - problem.from_offset()[0]) as i64;
                let diagonal = part.diagonal() + row - (from[1] - problem.from_offset()[1]) as i64;
                let triangle =
                    if part.is_upper() { Triangle::upper(diagonal) } else { Triangle::lower(diagonal) };
                smaller.only(triangle).unwrap()
            }
            None => smaller,
        };
        let expected = Plan::new(vec![smaller]).unwrap();
        assert_eq!((found.bytes(), found.hosted()), (expected.bytes(), None), "{region:?} of {moving:?}");
        cut += u64::from(found.bytes() > 0 && found.bytes() < plan.bytes());
        let (found, expected) = (&found.arrays()[0], &expected.arrays()[0]);
        assert_eq!(found.sources(), expected.sources());
        let elements = |target: &Target| -> Vec<Vec<[u64; 3]>> {
            let of_track = |track: &Track| {
                let of_piece = |piece: Stretch| {
                    let peer = track.peers()[piece.peer as usize];
                    (0..piece.len).map(move |deep| [peer, piece.from + deep, piece.to + deep])
                };
                track.pieces().flat_map(of_piece).collect()
            };
            target.tracks.iter().map(|track| of_track(track)).collect()
        };
        for (found, expected) in found.targets().iter().zip(expected.targets()) {
            assert_eq!(
                (found.rank, found.span, &found.strides),
                (expected.rank, expected.span, &expected.strides)
            );
            assert_eq!(elements(found), elements(expected), "rank {}: {region:?} of {moving:?}", found.rank);
            assert_eq!(
                (&found.rows, found.elems()),
                (&expected.rows, expected.elems()),
                "{region:?} of {moving:?}"
            );
            let peers = |target: &Target| {
                target.tracks.iter().map(|track| track.peers().to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(peers(found), peers(expected));
        }
    }
    assert!(cut > 300 && triangles > 50, "{cut} boxes cut something off, {triangles} triangles");
    let region = [0..3, 0..3];
    let plan = Plan::new(vec![Case::random(&mut random, &Kinds { dims: 2..3, ..kinds }).moving]).unwrap();
    let error = plan.within(&region[..1]).unwrap_err();
    assert!(error.to_string().contains("a box of 1 dimension was given for a destination of 2"), "{error}");
}

#[test]
fn one_rank_of_a_million_is_planned_alone() {
    let text = ["1024x1024/64x64 of 4194304x4194304", "1000x1000/50x30 of 4194304x4194304"];
    let [from, to] = text.map(|text| text.parse::<Layout>().unwrap());
    let moving = Move::of::<f64>(from, to).unwrap();
    let plan = Plan::for_rank(vec![moving], 524_288).unwrap();
    let array = &plan.arrays()[0];
    assert_eq!((array.sources().len(), array.targets().len()), (1, 1));
    assert_eq!(plan.bytes(), 8 << 44);
    assert_eq!(array.targets()[0].elems(), array.wanted().problem().to().local_elems(524_288).unwrap());
}
