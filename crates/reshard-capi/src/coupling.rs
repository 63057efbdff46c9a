//! What both sides of a coupling need: the processes of the job, where it meets the other, and options.

use crate::arrays::{reshard_source, reshard_target};
use crate::border::{Failure, Outcome, hand_out, list, places};
use crate::comm::of_fortran;
use crate::options::Coupling;
use reshard::{Error, ErrorKind};
use reshard_couple::{Job, Meeting, Options, World};
use reshard_mpi::communicator::ToCommunicator;
use std::time::Duration;

/// How long a rank whose options cannot be read waits to tell the others so.
const UNKNOWN_DEADLINE: Duration = Duration::from_secs(30);

/// The processes of a job, and the world that they share with the other, if one launch began both.
pub struct Processes {
    pub job: Job,
    world: Option<(World, String)>,
}

impl Processes {
    pub fn one() -> Self {
        Self { job: Job::hosting_all(), world: None }
    }

    /// Where the other job is met: a file, `at HOST:PORT`, or nothing if it is a program of the same launch.
    pub fn meeting(&self, text: Option<&str>) -> Outcome<Meeting> {
        match (text, &self.world) {
            (None, Some((world, partner))) => Ok(Meeting::in_world(world, partner)),
            (Some(_), Some(_)) => Err(Failure::argument(
                "`meeting` was given to programs of one launch, which need none; give null, or leave out program= and partner=",
            )),
            (None, None) => Err(Failure::argument(
                "`meeting` was given as a null pointer; give the path of a file, or \"at HOST:PORT\"",
            )),
            (Some(text), None) => match text.strip_prefix("at ") {
                Some(address) => Ok(Meeting::at(address.trim())?),
                None => Ok(Meeting::file(text)),
            },
        }
    }
}

/// Hands out a side of a coupling whose ranks are those of a communicator, or this program's among them. A rank that was called wrongly must
/// not leave the others alone: all of them fail.
///
/// # Safety
/// The handle is that of a communicator.
pub unsafe fn of_ranks<T>(
    handle: i32,
    place: Outcome<&mut *mut T>,
    options: Outcome<Coupling>,
    made: fn(Processes, Options) -> T,
) -> Outcome<()> {
    let place = place.map(|place| {
        *place = std::ptr::null_mut();
        place
    });
    let given = place.and_then(|place| Ok((place, options?)));
    // SAFETY: promised by the caller.
    let comm = unsafe { of_fortran(handle)? };
    let deadline = given.as_ref().map_or(UNKNOWN_DEADLINE, |(_, options)| options.deadline);
    let all = comm.to_communicator(Some(deadline))?;
    let told = |rank, kind, said: &str| Error::new(kind, format!("process {rank}: {said}"));
    let programs = given.as_ref().is_ok_and(|(_, options)| options.programs.is_some());
    let agreed = all.agree_on(given.as_ref().map(drop).map_err(Failure::to_error), Some(deadline), told);
    // What this rank was given wrong it knows best.
    let (place, Coupling { options, deadline, programs: names }) = given?;
    agreed?;
    let ways = all.gather_numbers(u64::from(programs), Some(deadline))?;
    if let Some(rank) = ways.iter().position(|&way| way != ways[0]) {
        return Err(Failure::of(
            ErrorKind::Mismatch,
            format!(
                "\"program=\" was given to rank 0 or to rank {rank}, and not to both; give it to all ranks, or to none"
            ),
        ));
    }
    let processes = match names {
        None => Processes { job: Job::of(&comm, deadline)?, world: None },
        Some((program, partner)) => {
            let world = World::split(&comm, &program, deadline)?;
            Processes { job: world.job(), world: Some((world, partner)) }
        }
    };
    hand_out(made(processes, options), place);
    Ok(())
}

/// What comes of a call that this rank cannot make, and takes part in to tell the others so.
pub fn refused(told: reshard::Result<()>, failure: Failure) -> Failure {
    // What this rank was given wrong it knows best.
    drop(told);
    failure
}

/// The parts that a caller gives, as slices.
///
/// # Safety
/// As many parts as said, each null or so many bytes that nobody changes meanwhile.
pub unsafe fn sources<'a>(parts: *const reshard_source, count: usize) -> Outcome<Vec<&'a [u8]>> {
    // SAFETY: promised by the caller.
    let parts = unsafe { list(parts, count, "parts")? };
    // SAFETY: likewise.
    parts
        .iter()
        .map(|part| unsafe { list(part.address.cast::<u8>(), part.bytes, "parts[i].address") })
        .collect()
}

/// The parts that a caller wants filled.
///
/// # Safety
/// As many parts as said, each null or so many bytes that nobody else uses meanwhile; none overlaps another.
pub unsafe fn targets<'a>(parts: *const reshard_target, count: usize) -> Outcome<Vec<&'a mut [u8]>> {
    // SAFETY: promised by the caller.
    let parts = unsafe { list(parts, count, "parts")? };
    let one = |part: &reshard_target| {
        // SAFETY: likewise.
        unsafe { places(part.address.cast::<u8>(), part.bytes, "parts[i].address") }
    };
    parts.iter().map(one).collect()
}
