//! The MPI library of this process: found, opened, asked who it is.
//!
//! There is one for the life of the process: MPI keeps threads and memory of its own and cannot be unloaded. Two of them
//! cannot work side by side, so a second wish for another one is an error.

use super::calls::{Calls, Either, each};
use crate::abi::{Abi, ERROR_TEXT_BYTES, Interface, Raw, SUCCESS, VERSION_TEXT_BYTES};
use crate::launch::launched;
use crate::search::{known, search};
use libc::{RTLD_GLOBAL, RTLD_NOLOAD, RTLD_NOW};
use libloading::os::unix::Library;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// The MPI library of this process.
pub struct Mpi {
    pub(super) calls: Either,
    pub(super) abi: Abi,
    interface: Interface,
    version: String,
    chosen: Option<String>,
    /// Makes a communicator from Fortran's number for it; the MPICH family needs none.
    pub(super) comm_from_fortran: Option<unsafe extern "C" fn(c_int) -> *mut c_void>,
    /// We ended it, or saw that it was ended.
    pub(super) ended: AtomicBool,
    /// How many sessions there are, of an MPI that we began.
    pub(super) sessions: AtomicUsize,
    pub(super) threads: OnceLock<Threads>,
    /// The key under which private duplicates are kept.
    pub(super) keyval: Mutex<Option<c_int>>,
    /// Open for ever: the pointers in `calls` point into it.
    _library: Library,
}

/// Who may call.
#[derive(Clone, Copy)]
pub(super) enum Threads {
    Any,
    /// Only the thread with this mark.
    One(usize),
}

/// A number that no other living thread has.
pub(super) fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl Mpi {
    /// Finds and loads the MPI library that fits, once for the process.
    ///
    /// `choice`, or else the environment variable `RESHARD_MPI`, is `openmpi`, `mpich`, `abi` or the path of a library. Without
    /// it: the library that is in the process already; or the one that fits the launcher; or any that is known.
    pub fn load(choice: Option<&str>) -> Result<&'static Mpi> {
        static LOADED: Mutex<Option<&'static Mpi>> = Mutex::new(None);
        let asked = std::env::var("RESHARD_MPI").ok().filter(|asked| !asked.is_empty());
        let choice = choice.or(asked.as_deref());
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(mpi) = *loaded {
            return match choice {
                Some(choice) if !mpi.fits(choice) => Err(Error::new(
                    ErrorKind::Mpi,
                    format!(
                        "asked for the MPI library {choice}, but {} is loaded, and two cannot share a process",
                        mpi.version
                    ),
                )),
                _ => Ok(mpi),
            };
        }
        let mpi: &'static Mpi = Box::leak(Box::new(Self::open(choice)?));
        *loaded = Some(mpi);
        Ok(mpi)
    }

    /// Its name and version in a few words, such as `Open MPI 4.1.4` or `MPICH 4.0.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn fits(&self, choice: &str) -> bool {
        match choice {
            "openmpi" => self.interface == Interface::OpenMpi,
            "mpich" => self.interface == Interface::Mpich,
            "abi" => self.interface == Interface::Standard,
            file => self.chosen.as_deref() == Some(file),
        }
    }

    fn open(choice: Option<&str>) -> Result<Self> {
        let search = search(choice, launched().map(|launcher| launcher.family));
        if search.present
            && let Some(library) = present()
        {
            return Self::of(library, choice);
        }
        let mut refusals = Vec::new();
        for name in &search.names {
            // SAFETY: opening an MPI library runs its initialisers, which are those every MPI program runs.
            match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(library) => return Self::of(library, choice),
                Err(error) => refusals.push(
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
                ),
            }
        }
        Err(Error::new(
            ErrorKind::Mpi,
            format!(
                "no MPI library can be loaded ({}); install one, or set RESHARD_MPI to openmpi, mpich, abi or the path of a library",
                refusals.join("; ")
            ),
        ))
    }

    fn of(library: Library, choice: Option<&str>) -> Result<Self> {
        let interface = interface(&library);
        // SAFETY: the symbols are variables of the library; only their addresses are taken.
        let address = |name: &'static str| match unsafe { library.get::<*mut c_void>(name.as_bytes()) } {
            Ok(symbol) => Ok(symbol.as_raw_ptr().expose_provenance() as Raw),
            Err(_) => Err(Error::new(ErrorKind::Mpi, format!("the MPI library has no {name}"))),
        };
        let abi = interface.abi(address)?;
        // SAFETY: the interface says which kind of handle the library has.
        let calls = unsafe {
            match interface {
                Interface::Mpich => Either::Integers(Calls::find(&library)?),
                Interface::OpenMpi | Interface::Standard => Either::Pointers(Calls::find(&library)?),
            }
        };
        let comm_from_fortran = match interface {
            Interface::Mpich => None,
            // SAFETY: where handles are pointers, both functions take Fortran's number and return a handle.
            Interface::OpenMpi | Interface::Standard => ["MPI_Comm_f2c", "MPI_Comm_fromint"]
                .iter()
                .find_map(|name| unsafe { library.get(name.as_bytes()) }.ok())
                .map(|symbol| *symbol),
        };
        let mut mpi = Self {
            calls,
            abi,
            interface,
            version: String::new(),
            chosen: choice.map(String::from),
            comm_from_fortran,
            ended: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            threads: OnceLock::new(),
            keyval: Mutex::new(None),
            _library: library,
        };
        let text = text::<VERSION_TEXT_BYTES>(|bytes, length| {
            // SAFETY: may be called before MPI begins; there is room for the longest text.
            each!(mpi, calls => unsafe { (calls.get_library_version)(bytes, length) })
        });
        mpi.version = short(&text);
        Ok(mpi)
    }

    /// Refuses when nothing may be called: MPI has ended, or another thread was to call it.
    pub(super) fn may_call(&self) -> Result<()> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Mpi, "MPI has ended in this process and cannot begin again"));
        }
        match self.threads.get() {
            Some(Threads::One(thread)) if *thread != this_thread() => Err(Error::new(
                ErrorKind::Mpi,
                "MPI was called by a second thread, but was begun for one; call it from the thread that began it",
            )),
            _ => Ok(()),
        }
    }

    /// Turns a return code into an error that names the call.
    pub(super) fn check(&self, call: &str, code: c_int) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.failure(call, code)) }
    }

    #[cold]
    fn failure(&self, call: &str, code: c_int) -> Error {
        let text = text::<ERROR_TEXT_BYTES>(|bytes, length| {
            // SAFETY: the code came from this library; there is room for the longest text.
            each!(self, calls => unsafe { (calls.error_string)(code, bytes, length) })
        });
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Error::new(ErrorKind::Mpi, format!("{call} failed: {text} (code {code}, {})", self.version))
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi({}, {:?})", self.version, self.interface)
    }
}

/// The library that is in the process already, if there is one.
fn present() -> Option<Library> {
    let this = Library::this();
    // SAFETY: only asked whether it is there.
    if unsafe { this.get::<*mut c_void>(b"MPI_Init_thread") }.is_ok() {
        return Some(this);
    }
    // SAFETY: nothing is loaded, so nothing runs.
    known().find_map(|name| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) }.ok())
}

/// Asks a library for its interface: Open MPI has its symbols, the standard ABI says so itself, all others are MPICH.
fn interface(library: &Library) -> Interface {
    type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: only its presence counts; and the standard gives `MPI_Abi_get_version` this type and lets it be called at any
    // time. A library that has the function without the ABI answers -1.
    unsafe {
        if library.get::<*mut c_void>(b"ompi_mpi_comm_world").is_ok() {
            return Interface::OpenMpi;
        }
        if let Ok(version) = library.get::<AbiVersion>(b"MPI_Abi_get_version") {
            version(&raw mut major, &raw mut minor);
        }
    }
    if major >= 1 { Interface::Standard } else { Interface::Mpich }
}

/// A text that a call writes, with its length.
fn text<const BYTES: usize>(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut bytes = vec![0u8; BYTES];
    let mut length: c_int = 0;
    if write(bytes.as_mut_ptr().cast(), &raw mut length) != SUCCESS {
        return "no text for this".to_string();
    }
    let length = usize::try_from(length).unwrap_or(0).min(BYTES);
    String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\0').trim().to_string()
}

/// Name and version from the long text of a library.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    let first = |text: &str| {
        text.split([',', ' ', '\t']).find(|word| !word.is_empty()).unwrap_or_default().to_string()
    };
    if let Some(rest) = line.strip_prefix("Open MPI v") {
        return format!("Open MPI {}", first(rest));
    }
    match line.split_once("Version:") {
        Some((name, version)) => format!("{} {}", name.trim(), first(version)),
        None => line
            .replace("(R)", "")
            .replace(" Library", "")
            .split(" for ")
            .next()
            .unwrap_or_default()
            .to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn versions_are_short() {
        assert_eq!(short("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI 4.1.4");
        assert_eq!(short("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7"), "MPICH 4.0.2");
        assert_eq!(short("Intel(R) MPI Library 2021.18.1 for Linux* OS\n"), "Intel MPI 2021.18.1");
    }
}
