//! Small arrays in one collective of MPI, for ranks that have agreed on everything already.
//!
//! An engine agrees before it moves anything, shares memory and compiles routes: for a small array that moves once or twice that takes
//! longer than all else. Here nothing is agreed, making one is local, and a run is a list of copies, one `MPI_Alltoallv`, and another
//! list of copies.

#![allow(unsafe_code)]

use crate::ffi::comm::Comm;
use crate::mpi_transport::PrivateComm;
use reshard::engine::{BufferTable, RawPart};
use reshard_plan::{Error, ErrorKind, Plan, Result};
use std::sync::Arc;

/// One rank's side of moving the one array of a plan in one collective. All ranks of the communicator must make it of the same move, with
/// the strides of all ranks, and run it as often and in the same order as any other collective; a rank that does not come is waited
/// for without a timeout.
#[doc(hidden)]
pub struct OneCollective {
    plan: Arc<Plan>,
    comm: Arc<Comm>,
    /// What is packed, in the order of the buffer, and what is unpacked: offset in the part, and bytes.
    copies: [Vec<(usize, usize)>; 2],
    /// What this rank keeps: offsets in the source and in the destination, and bytes.
    own: Vec<(usize, usize, usize)>,
    /// Bytes to and from each rank, and their offsets in the buffers.
    counts: [Vec<i32>; 2],
    at: [Vec<i32>; 2],
    buffers: [Vec<u8>; 2],
    table: BufferTable,
}

impl OneCollective {
    /// Prepares the move of a plan that lists the peers of this rank. Fails for a triangle, and for more than 2^31 bytes.
    pub fn new(plan: Arc<Plan>, comm: &PrivateComm) -> Result<Self> {
        let refused = |why: &str| Error::new(ErrorKind::Unsupported, format!("one collective moves {why}"));
        let array = plan.arrays().first().ok_or_else(|| refused("one array, and none was given"))?;
        if plan.arrays().len() > 1 || array.wanted().triangle().is_some() {
            return Err(refused("one array, whole rectangles of it"));
        }
        let (rank, size) = (comm.rank() as u64, comm.size());
        let elem = array.wanted().elem_bytes();
        // For each rank, what goes there, and what comes from there.
        let mut with: [Vec<Vec<(usize, usize)>>; 2] = [vec![Vec::new(); size], vec![Vec::new(); size]];
        let mut own = Vec::new();
        for target in array.targets().iter().filter(|target| target.elems() > 0) {
            for place in array.places_of(target, rank) {
                let unlisted = || refused("what a plan lists, with the peers of a rank");
                let source = array.source_at(target, place).ok_or_else(unlisted)?;
                let source = array.sources()[source].rank;
                for run in array.memory_runs(target, place).ok_or_else(unlisted)? {
                    let [from, to, bytes] =
                        [run.from, run.to, run.elems].map(|elems| (elems * elem) as usize);
                    match (source == rank, target.rank == rank) {
                        (true, true) => own.push((from, to, bytes)),
                        (true, false) => with[0][target.rank as usize].push((from, bytes)),
                        (false, true) => with[1][source as usize].push((to, bytes)),
                        (false, false) => {}
                    }
                }
            }
        }
        let sum = |copies: &Vec<(usize, usize)>| copies.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let bytes = with.each_ref().map(|with| with.iter().map(sum).collect::<Vec<usize>>());
        let all = bytes.each_ref().map(|bytes| bytes.iter().sum::<usize>());
        if all.iter().any(|&all| i32::try_from(all).is_err()) {
            return Err(refused("less than 2^31 bytes of a rank"));
        }
        let at = bytes.each_ref().map(|bytes| {
            let before =
                |next: &mut usize, count: &usize| Some(std::mem::replace(next, *next + count) as i32);
            bytes.iter().scan(0, before).collect()
        });
        let counts = bytes.map(|bytes| bytes.into_iter().map(|bytes| bytes as i32).collect());
        // At least one byte each: MPI rejects equal addresses of the two buffers as aliasing.
        let buffers = all.map(|all| vec![0; all + 1]);
        let copies = with.map(|with| with.concat());
        let table = BufferTable::new(Arc::clone(&plan));
        Ok(Self { plan, comm: comm.shared(), copies, own, counts, at, buffers, table })
    }

    /// Elements that this rank's source part and its destination part span in memory; 0 if it has none.
    pub fn lens(&self) -> [usize; 2] {
        let (array, rank) = (&self.plan.arrays()[0], self.comm.rank() as u64);
        let source = array.source_of(rank).map(|source| array.sources()[source].span);
        let target = array.target_of(rank).map(|target| array.targets()[target].span);
        [source, target].map(|span| span.unwrap_or(0) as usize)
    }

    /// Moves the array. Collective.
    ///
    /// # Safety
    /// As for [`Own::raw`](crate::Own::raw).
    pub unsafe fn run(&mut self, from: RawPart, to: RawPart) -> Result<()> {
        let Self { comm, copies, own, counts, at, buffers, table, .. } = self;
        let mut data = table.fill();
        // SAFETY: promised by the caller.
        unsafe { data.enter_own_raw(0, comm.rank() as u64, from, to, None)? };
        let (from, to) = data.own_of(0, comm.rank() as u64);
        let [send, receive] = buffers;
        // SAFETY: all offsets are those of elements of the plan, within the spans of the parts, which were checked; buffers have room
        // for the sums of what is packed and unpacked. A source that the destination overlaps was copied.
        unsafe {
            let mut next = send.as_mut_ptr();
            for &(offset, bytes) in &copies[0] {
                std::ptr::copy_nonoverlapping(from.add(offset), next, bytes);
                next = next.add(bytes);
            }
            comm.all_to_all_v(send.as_ptr(), &counts[0], &at[0], receive.as_mut_ptr(), &counts[1], &at[1])?;
            let mut next = receive.as_ptr();
            for &(offset, bytes) in &copies[1] {
                std::ptr::copy_nonoverlapping(next, to.add(offset), bytes);
                next = next.add(bytes);
            }
            for &(source, target, bytes) in own.iter() {
                std::ptr::copy_nonoverlapping(from.add(source), to.add(target), bytes);
            }
        }
        data.clear();
        Ok(())
    }
}
