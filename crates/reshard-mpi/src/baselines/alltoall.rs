//! The two usual ways to redistribute by hand, as baselines: pack everything and call `MPI_Alltoallv`, or describe
//! everything with derived datatypes and call `MPI_Alltoallw`.
//!
//! The datatypes are as compact as a careful user would make them: vectors of vectors wherever blocks repeat.

use crate::ffi::collective::Blocks;
use crate::ffi::comm::Comm;
use crate::ffi::datatype::Datatype;
use crate::ffi::library::Mpi;
use crate::mover::{MoverBackend, Progress, RunCounters, check_unscaled};
use reshard::engine::{Buffers, Level, MessagesOptions};
use reshard::rank::{Program, RankPacker, messages};
use reshard::schedule::Strategy;
use reshard_plan::{Array, Error, ErrorKind, MemoryOrder, Plan, Result, Stretch, Track};
use std::sync::Arc;

/// The mover `alltoallv`: packs everything, exchanges it in one collective, unpacks it.
pub struct AllToAllV {
    packer: RankPacker,
    program: Program,
    comm: Comm,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// Bytes to and from each rank.
    counts: [Vec<i32>; 2],
    /// Offsets of those bytes in the buffers.
    at: [Vec<i32>; 2],
    /// For each rank, the bytes packed or unpacked so far.
    done: Vec<usize>,
    /// Messages packed in this run.
    messages: u64,
}

impl AllToAllV {
    /// Needs a communicator of its own: collectives of two engines must not be matched with each other.
    pub fn new(plan: &Arc<Plan>, comm: Comm, level: Option<Level>) -> Result<Self> {
        // Each message is one fragment, and arrays that move alike are one group.
        let options = MessagesOptions::default().with_strategy(Strategy::Async).with_level(level);
        let (packer, program) = messages(plan, comm.rank() as u64, &options, i32::MAX as usize)?;
        let mut counts = [vec![0_u64; comm.size()], vec![0_u64; comm.size()]];
        for range in &program.sends {
            counts[0][packer.ends(range).1 as usize] += packer.bytes(range);
        }
        for range in &program.receives {
            counts[1][packer.ends(range).0 as usize] += packer.bytes(range);
        }
        let at = [offsets(&counts[0])?, offsets(&counts[1])?];
        // At least one byte each: MPI rejects equal addresses of the two buffers as aliasing.
        let total = |counts: &[u64]| counts.iter().sum::<u64>() as usize + 1;
        let (send, receive) = (vec![0; total(&counts[0])], vec![0; total(&counts[1])]);
        let counts = counts.map(|counts| counts.into_iter().map(|count| count as i32).collect());
        let done = vec![0; comm.size()];
        Ok(Self { packer, program, comm, send, receive, counts, at, done, messages: 0 })
    }
}

impl MoverBackend for AllToAllV {
    fn is_one_call(&self) -> bool {
        true
    }

    fn check(&self, data: &Buffers<'_>) -> Result<()> {
        check_unscaled(data, "MPI_Alltoallv")
    }

    fn begin(&mut self, data: &mut Buffers<'_>, _: u64) {
        self.packer.begin(data);
        self.messages = 0;
    }

    /// Does the whole run: blocks until all ranks have called it.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let Self { packer, program, comm, send, receive, counts, at, done, messages } = self;
        done.fill(0);
        for range in &program.sends {
            let to = packer.ends(range).1 as usize;
            let offset = at[0][to] as usize + done[to];
            let mut cursor = packer.open(data, range);
            while !cursor.finished() {
                *messages += 1;
                done[to] += packer.pack(data, range, &mut cursor, &mut send[offset..]);
            }
        }
        // SAFETY: counts and offsets were made for these buffers.
        unsafe {
            comm.all_to_all_v(send.as_ptr(), &counts[0], &at[0], receive.as_mut_ptr(), &counts[1], &at[1])?;
        }
        while packer.copy_local(data) {}
        done.fill(0);
        for range in &program.receives {
            let from = packer.ends(range).0 as usize;
            let offset = at[1][from] as usize + done[from];
            let mut cursor = packer.open(data, range);
            while !cursor.finished() {
                done[from] += packer.unpack(data, range, &mut cursor, &receive[offset..]);
            }
        }
        Ok(Progress::Done)
    }

    fn awaited(&self) -> String {
        "the others".into()
    }

    fn counters(&self) -> RunCounters {
        RunCounters { messages: self.messages, ..RunCounters::default() }
    }

    fn scratch_bytes(&self) -> u64 {
        (self.send.len() + self.receive.len()) as u64 + self.packer.scratch_bytes()
    }
}

/// The offset of each rank's bytes in a buffer that holds those of all ranks in order.
fn offsets(counts: &[u64]) -> Result<Vec<i32>> {
    let mut next = 0;
    counts
        .iter()
        .map(|&count| {
            let offset = next;
            next += count;
            let fits = i32::try_from(next).is_ok();
            i32::try_from(offset).ok().filter(|_| fits).ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "MPI_Alltoallv counts to 2^31, and a rank has more bytes to move; choose another mover",
                )
            })
        })
        .collect()
}

/// The mover `alltoallw`: describes everything with derived datatypes and exchanges it in one collective for each array.
pub struct AllToAllW {
    comm: Comm,
    /// For each array, the datatypes of what goes to each rank, and of what comes from each.
    types: Vec<[Vec<Option<Datatype>>; 2]>,
    /// Stands for the datatype of a pair of ranks that exchange nothing.
    nothing: Datatype,
}

impl AllToAllW {
    /// Needs a communicator of its own: collectives of two engines must not be matched with each other.
    pub fn new(plan: &Arc<Plan>, comm: Comm) -> Result<Self> {
        let types = plan.arrays().iter().map(|array| types_of(array, &comm)).collect::<Result<Vec<_>>>()?;
        Ok(Self { types, nothing: Datatype::bytes(comm.mpi()), comm })
    }
}

impl MoverBackend for AllToAllW {
    fn is_one_call(&self) -> bool {
        true
    }

    fn check(&self, data: &Buffers<'_>) -> Result<()> {
        check_unscaled(data, "MPI_Alltoallw")
    }

    fn begin(&mut self, _: &mut Buffers<'_>, _: u64) {}

    /// Does the whole run: blocks until all ranks have called it.
    fn advance(&mut self, data: &mut Buffers<'_>) -> Result<Progress> {
        let at = vec![0; self.comm.size()];
        let mut nothing = [0_u8; 2];
        for (array, [out, into]) in self.types.iter().enumerate() {
            let counts = |types: &[Option<Datatype>]| -> Vec<i32> {
                types.iter().map(|kind| i32::from(kind.is_some())).collect()
            };
            let (out_counts, into_counts) = (counts(out), counts(into));
            let [out_types, into_types] = [out, into].map(|types| -> Vec<&Datatype> {
                types.iter().map(|kind| kind.as_ref().unwrap_or(&self.nothing)).collect()
            });
            let (mut from, mut to) = data.own_of(array, self.comm.rank() as u64);
            // An empty slice of bytes has the address 1, which is MPI_IN_PLACE in Open MPI.
            if out_counts.iter().all(|&count| count == 0) {
                from = nothing[..1].as_ptr();
            }
            if into_counts.iter().all(|&count| count == 0) {
                to = nothing[1..].as_mut_ptr();
            }
            // SAFETY: the datatypes were made from the plan, and the data holds its parts over their whole spans.
            unsafe {
                self.comm.all_to_all_w(
                    from,
                    Blocks { counts: &out_counts, at: &at, types: &out_types },
                    to,
                    Blocks { counts: &into_counts, at: &at, types: &into_types },
                )?;
            }
        }
        Ok(Progress::Done)
    }

    fn awaited(&self) -> String {
        "the others".into()
    }

    fn counters(&self) -> RunCounters {
        RunCounters::default()
    }

    fn scratch_bytes(&self) -> u64 {
        0
    }
}

/// The datatypes of one array: of what goes to each rank, and of what comes from each.
fn types_of(array: &Array, comm: &Comm) -> Result<[Vec<Option<Datatype>>; 2]> {
    let rank = comm.rank() as u64;
    let elem = array.wanted().elem_bytes();
    if array.targets().iter().any(|target| target.rows.is_some()) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "datatypes for MPI_Alltoallw are made of whole rectangles, not of triangles; choose another mover",
        ));
    }
    let mut types = [(); 2].map(|()| (0..comm.size()).map(|_| None).collect::<Vec<_>>());
    for target in array.targets().iter().filter(|target| target.elems() > 0) {
        for place in array.places_of(target, rank) {
            let Some(source) = array.source_at(target, place).map(|source| &array.sources()[source]) else {
                continue;
            };
            let peers = target.tracks.iter().zip(target.peers_at(place));
            let tracks: Vec<Track> = peers.map(|(track, peer)| track.with_peer(peer)).collect();
            // Begin with the axis whose elements are usually closest in memory. Both sides must nest the axes in the same
            // order, and each knows only its own strides.
            let mut order: Vec<usize> = (0..tracks.len()).collect();
            if array.order() == MemoryOrder::RowMajor {
                order.reverse();
            }
            let make = |strides: &[u64], side: fn(&Stretch) -> (u64, u64)| {
                let element = Datatype::bytes(comm.mpi()).contiguous(elem as i32)?;
                let nest = |inner: Datatype, &dim: &usize| {
                    along(comm.mpi(), &inner, &tracks[dim], strides[dim].wrapping_mul(elem), side)
                };
                order.iter().try_fold(element, nest)?.commit()
            };
            if source.rank == rank {
                types[0][target.rank as usize] = Some(make(&source.strides, |s| (s.from, s.from_step))?);
            }
            if target.rank == rank {
                types[1][source.rank as usize] = Some(make(&target.strides, |s| (s.to, s.to_step))?);
            }
        }
    }
    Ok(types)
}

/// Repeats a datatype at all indices of a track. `side` gives the first index of a stretch and its step from round to round;
/// `stride` is in bytes.
fn along(
    mpi: &'static Mpi,
    inner: &Datatype,
    track: &Track,
    stride: u64,
    side: fn(&Stretch) -> (u64, u64),
) -> Result<Datatype> {
    let count = |number: u64| {
        i32::try_from(number).map_err(|_| {
            Error::new(ErrorKind::Unsupported, format!("{number} is more than a datatype of MPI can count"))
        })
    };
    let mut members = Vec::new();
    for each in track.loops() {
        for stretch in &each.stretches {
            let (first, step) = side(stretch);
            let stretch_type = inner.hvector(count(stretch.len)?, 1, stride as isize)?;
            let repeated = match each.rounds {
                1 => stretch_type,
                rounds => stretch_type.hvector(count(rounds)?, 1, step.wrapping_mul(stride) as isize)?,
            };
            members.push((first.wrapping_mul(stride), repeated));
        }
    }
    match &members[..] {
        [(0, _)] => Ok(members.remove(0).1),
        _ => {
            let members: Vec<(i32, isize, &Datatype)> =
                members.iter().map(|(at, kind)| (1, *at as isize, kind)).collect();
            Datatype::structure(mpi, &members)
        }
    }
}
