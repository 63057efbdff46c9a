//! MPI and the BLACS of the host program, as calls of one integer width see them.

#![allow(unsafe_code)]

use crate::arguments::{Arguments, Integer};
use crate::blacs::Blacs;
use crate::groups::Kept;
use crate::routine::{Argument, Shape};
use reshard_mpi::{Comm, Mpi, RawComm, Session};
use std::sync::OnceLock;

/// MPI and the BLACS.
pub struct Host<I> {
    pub session: Session,
    pub blacs: Blacs<I>,
}

impl<I: Integer + 'static> Host<I> {
    /// Finds MPI and the BLACS.
    pub fn find() -> Result<Self, String> {
        let blacs = Blacs::find()?;
        let mpi = Mpi::load(None).map_err(|error| error.to_string())?;
        // A second MPI in the process would know nobody.
        if !mpi.has_begun().map_err(|error| error.to_string())? {
            return Err(format!(
                "{} was found, and the program has not begun it; if its BLACS use another MPI, name that library in RESHARD_MPI",
                mpi.version()
            ));
        }
        let session = mpi.init().map_err(|error| error.to_string())?;
        mpi.at_end(|| Kept::get().drop_everything()).map_err(|error| error.to_string())?;
        Ok(Self { session, blacs })
    }

    /// The communicator of all processes that call.
    pub fn communicator(&self, call: &Arguments<I>) -> Result<Comm, String> {
        let handle = match call.context {
            // SAFETY: the world is there until MPI ends.
            None => return unsafe { self.session.world().borrow() }.map_err(|error| error.to_string()),
            Some(context) if self.blacs.grid(context).is_some() => {
                // SAFETY: this process belongs to the context.
                unsafe { self.blacs.communicator(context) }
            }
            Some(_) => None,
        };
        let handle: RawComm = handle.ok_or_else(|| {
            let argument = match call.routine.shape {
                Shape::Transposed { .. } => {
                    format!("entry 2 (CTXT) of {}", call.routine.argument(Argument::DescA))
                }
                _ => call.routine.argument(Argument::Context),
            };
            format!(
                "{argument} is {}, which is no context that this process belongs to; give one of all processes of both matrices",
                call.context.unwrap_or_default()
            )
        })?;
        // SAFETY: MPI has begun, and the BLACS keep the communicator as long as the context, which outlives the call.
        unsafe { Comm::from_raw(self.session.mpi(), handle) }.map_err(|error| error.to_string())
    }
}

/// An integer width, with the host program's functions for it.
pub trait Width: Integer + 'static {
    #[doc(hidden)]
    fn host() -> &'static OnceLock<Host<Self>>;
}

macro_rules! widths {
    ($($integer:ty),*) => {
        $(impl Width for $integer {
            fn host() -> &'static OnceLock<Host<Self>> {
                static HOST: OnceLock<Host<$integer>> = OnceLock::new();
                &HOST
            }
        })*
    };
}
widths!(i32, i64);

/// The host program. What could not be found may be there at the next call.
pub fn host<I: Width>() -> Result<&'static Host<I>, String> {
    if I::host().get().is_none() {
        let found = Host::find()?;
        I::host().get_or_init(|| found);
    }
    I::host().get().ok_or_else(|| "MPI is gone".into())
}

/// Ends the job, after an error was said.
pub fn abort<I: Width>() -> ! {
    match host::<I>() {
        Ok(host) => host.session.abort(1),
        Err(_) => std::process::exit(1),
    }
}
