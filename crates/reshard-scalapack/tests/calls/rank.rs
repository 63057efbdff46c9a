//! What a launched process does.

use crate::Int;
use crate::case::Case;
use crate::host::{Call, Host, last_error};
use crate::{kept, partners, transposes, wrong};
use reshard_mpi::mpi::Reduce;
use reshard_testkit::Random;

pub fn play(part: &str) {
    let words: Vec<&str> = part.split(' ').collect();
    if words[0] != "abort" {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_ERRORS", "return") };
    }
    // Small matrices take the way of large ones, or that between nodes.
    if let Some(way) = words[0].strip_suffix("-sets") {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_SCALAPACK_ONLY", way) };
    }
    if words[0] == "progress" {
        // Otherwise Open MPI receives a message without its sender.
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("OMPI_MCA_btl_vader_single_copy_mechanism", "none") };
    }
    if ["absent", "late", "killed"].contains(&words[0]) {
        // SAFETY: nothing else runs in this process yet.
        unsafe { std::env::set_var("RESHARD_DEADLINE", "1") };
    }
    let host = Host::new(words[0] == "hidden");
    let number = |k: usize| words[k].parse::<u64>().unwrap();
    match words[0] {
        "sets" | "engine-sets" | "collective-sets" | "hidden" => sets(&host, number(1), number(2)),
        "transposes" => transposes::sets(&host, number(1), number(2)),
        "other-transposes" => transposes::others(&host),
        "names" => names(&host),
        "arguments" => wrong::arguments(&host),
        "disagreement" => wrong::disagreement(&host, number(1), number(2)),
        "contexts" => kept::contexts(&host, number(1)),
        "groups" => kept::groups(&host, number(1)),
        "different-contexts" => wrong::different_contexts(&host),
        "abort" => wrong::abort(&host),
        "guesses" => kept::guesses(&host, number(1)),
        "progress" => partners::progress(&host),
        "absent" => partners::absent(&host),
        "late" => partners::late(&host),
        "killed" => partners::killed(&host),
        "two-threads" => partners::two_threads(&host),
        "rounds" => kept::rounds(&host),
        "huge" => kept::huge(&host),
        "many-shapes" => kept::many_shapes(&host, number(1)),
        _ => panic!("no part {part}"),
    }
    println!("[{}/{} done]", host.world().rank(), host.world().size());
    host.end();
}

/// The contexts of a case: of A, of B, of all that call.
pub struct Contexts([Int; 3]);

impl Contexts {
    pub fn new(host: &Host, case: &Case) -> Self {
        let [a, b] = &case.sides;
        Self([&a.grid, &b.grid, &case.global].map(|grid| host.context(grid.rows, grid.columns, &grid.ranks)))
    }

    pub fn destroy(self, host: &Host) {
        self.0.into_iter().for_each(|context| host.destroy(context));
    }
}

/// Calls a routine for a case; returns the memory of B, or none if this process does not call.
pub fn run(host: &Host, case: &Case, contexts: &Contexts, ours: bool, of_c: bool) -> Option<Vec<u8>> {
    let rank = host.world().rank();
    if !case.global.ranks.contains(&rank) {
        return None;
    }
    let (mut a, mut b) = case.before(rank);
    let untouched = a.bytes.clone();
    let [from, to] = &case.sides;
    let desca = from.descriptor(contexts.0[0], rank);
    // With one array there is one descriptor.
    let descb = if case.in_place { desca } else { to.descriptor(contexts.0[1], rank) };
    let int = |index: usize| index as Int + 1;
    let a_part = a.bytes.as_mut_ptr();
    let call = Call {
        letters: case.letters,
        m: case.window[0] as Int,
        n: case.window[1] as Int,
        a: a_part,
        ia: int(from.first[0]),
        ja: int(from.first[1]),
        desca: &desca,
        b: b.as_mut().map_or(a_part, |b| b.bytes.as_mut_ptr()),
        ib: int(to.first[0]),
        jb: int(to.first[1]),
        descb: &descb,
        context: (!case.of_all).then_some(contexts.0[2]),
    };
    host.call(ours, &case.name(of_c), &call);
    match b {
        Some(b) => {
            assert!(a.bytes == untouched, "A was written to: {case:?}");
            Some(b.bytes)
        }
        None => Some(a.bytes),
    }
}

/// Random parameter sets: every byte of B, and of A, and between them.
fn sets(host: &Host, seed: u64, count: u64) {
    let (rank, size) = (host.world().rank(), host.world().size());
    let mut random = Random::new(seed);
    let (mut moved, mut equal, mut reference_wrong) = (0, 0, 0_u64);
    for number in 0..count {
        let case = Case::random(&mut random, size);
        let contexts = Contexts::new(host, &case);
        // Twice: planned, and with the plan that was kept.
        for of_c in [number % 2 == 0, number % 2 == 1] {
            if let Some(found) = run(host, &case, &contexts, true, of_c) {
                assert_eq!(last_error(), None, "{case:?}");
                let expected = case.expected(rank);
                let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                assert_eq!(
                    (wrong, found.len()),
                    (None, expected.len()),
                    "set {number} on rank {rank}: {case:?}"
                );
                moved += 1;
            }
        }
        // The reference may take other windows of the same array for right or wrong; it is asked for different arrays alone.
        let mut wrong = [0];
        if !case.in_place
            && let Some(found) = run(host, &case, &contexts, false, number % 2 == 0)
        {
            wrong[0] = u64::from(found != case.expected(rank));
            equal += u64::from(wrong[0] == 0);
        }
        host.world().all_reduce(&mut wrong, Reduce::Max).unwrap();
        reference_wrong += wrong[0];
        contexts.destroy(host);
    }
    if rank == 0 {
        println!(
            "  sets: {count}, {moved} calls of rank 0 right, {equal} equal to ScaLAPACK's, which was wrong in {reference_wrong}"
        );
    }
    let mut all_moved = [moved];
    host.world().all_reduce(&mut all_moved, Reduce::Max).unwrap();
    assert!(all_moved[0] >= count, "{all_moved:?}");
}

/// A small matrix on a grid of one row, for tests of arguments: the descriptor, and memory.
pub struct Simple {
    pub descriptor: [Int; 9],
    pub context: Int,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
}

impl Simple {
    pub fn new(host: &Host) -> Self {
        let (rank, size) = (host.world().rank(), host.world().size());
        let context = host.context(1, size, &(0..size).collect::<Vec<_>>());
        let columns = 3 * size;
        let a = (0..30).map(|at| (rank * 100 + at) as f64).collect();
        Self { descriptor: [1, context, 10, columns as Int, 10, 3, 0, 0, 10], context, a, b: vec![-1.0; 30] }
    }

    pub fn call<'a>(&'a mut self, descriptors: [&'a [Int; 9]; 2]) -> Call<'a> {
        Call {
            letters: None,
            m: 10,
            n: self.descriptor[3],
            a: self.a.as_mut_ptr().cast(),
            ia: 1,
            ja: 1,
            desca: descriptors[0],
            b: self.b.as_mut_ptr().cast(),
            ib: 1,
            jb: 1,
            descb: descriptors[1],
            context: Some(self.context),
        }
    }
}

/// Every name is there and does the same.
pub fn names(host: &Host) {
    for name in ["pdgemr2d_", "pdgemr2d", "pdgemr2d__", "PDGEMR2D", "reshard_pdgemr2d_", "Cpdgemr2d"] {
        let mut simple = Simple::new(host);
        let descriptor = simple.descriptor;
        let call = simple.call([&descriptor; 2]);
        host.call(true, name, &call);
        assert_eq!(last_error(), None);
        assert_eq!(simple.a, simple.b, "{name}");
        host.destroy(simple.context);
    }
}
