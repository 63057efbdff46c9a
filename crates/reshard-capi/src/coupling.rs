//! What both sides of a coupling need: the processes of the job, where it meets the other, and options.

use crate::arrays::{reshard_source, reshard_target};
use crate::border::{Failure, Outcome, list, places};
use crate::comm::of_fortran;
use crate::options::Coupling;
use reshard_couple::{Job, Meeting, World};

/// The processes of a job, and the world that they share with the other, if one launch began both.
pub struct Processes {
    pub job: Job,
    world: Option<(World, String)>,
}

impl Processes {
    pub fn one() -> Self {
        Self { job: Job::hosting_all(), world: None }
    }

    /// The ranks of a communicator, or this program's among them.
    ///
    /// # Safety
    /// The handle is that of a communicator.
    pub unsafe fn of_ranks(handle: i32, options: &Coupling) -> Outcome<Self> {
        // SAFETY: promised by the caller.
        let comm = unsafe { of_fortran(handle)? };
        let deadline = options.deadline;
        Ok(match &options.programs {
            None => Self { job: Job::of(&comm, deadline)?, world: None },
            Some((program, partner)) => {
                let world = World::split(&comm, program, deadline)?;
                Self { job: world.job(), world: Some((world, partner.clone())) }
            }
        })
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
