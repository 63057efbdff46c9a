//! The MPI library of this process: found, opened, its interface identified.
//!
//! There is one for the life of the process: MPI keeps threads and memory of its own and cannot be unloaded. Two cannot
//! work side by side, so loading another one is an error.

use super::calls::{CallTable, Calls, each};
use crate::abi::{Abi, ERROR_TEXT_BYTES, Interface, Raw, SUCCESS, VERSION_TEXT_BYTES};
use crate::fork::{forked_off, is_forked};
use crate::launch::launched;
use crate::search::{known_names, search};
use libc::{RTLD_GLOBAL, RTLD_NOLOAD, RTLD_NOW};
use libloading::os::unix::Library;
use reshard_plan::{Error, ErrorKind, Result};
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Something that is dropped as soon as it is over, or given up.
pub(super) trait Pending: Send {
    /// Advances it. Returns whether it is over.
    fn is_over(&mut self) -> Result<bool>;

    /// Makes dropping it safe where it can never be over.
    fn give_up(&mut self);
}

/// The MPI library of this process.
pub struct Mpi {
    pub(super) calls: CallTable,
    pub(super) abi: Abi,
    interface: Interface,
    version: String,
    chosen: Option<String>,
    /// Makes a communicator from Fortran's number for it; the MPICH family needs none.
    pub(super) comm_from_fortran: Option<unsafe extern "C" fn(c_int) -> *mut c_void>,
    /// Living sessions of an MPI that was begun here.
    pub(super) sessions: AtomicUsize,
    pub(super) threads: OnceLock<Threads>,
    /// Serializes calls.
    call_lock: Mutex<()>,
    /// The thread that holds `call_lock`; 0 if none does.
    lock_holder: AtomicUsize,
    /// The keys of our attributes.
    pub(super) keys: Mutex<Option<Keys>>,
    /// Held while a duplicate is looked up and, if there is none, begun.
    pub(super) duplicate_lock: Mutex<()>,
    /// Duplicates that wait to be freed: see `retired.rs`.
    pub(super) retired: Mutex<Vec<Box<dyn Pending>>>,
    /// MPI is about to end.
    pub(super) is_ending: AtomicBool,
    /// What is called when MPI ends, while it still works.
    pub(super) at_end: Mutex<Vec<fn()>>,
    /// Never closed: the pointers in `calls` point into it.
    _library: Library,
}

/// The keys of our attributes: see `kept.rs`.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// On a communicator: its duplicate.
    pub duplicate: c_int,
    /// On `MPI_COMM_SELF`: what is done when MPI ends.
    pub end: c_int,
}

/// True once MPI has ended. A process has one MPI, so this is global.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Why MPI cannot be called any more, if that is not because it has ended: a call of it has never returned.
static GIVEN_UP: OnceLock<String> = OnceLock::new();

/// Which threads may call MPI.
#[derive(Clone, Copy)]
pub(super) enum Threads {
    /// Any thread.
    Multiple,
    /// Any thread, one at a time.
    Serialized,
    /// Only the thread with this number: see [`this_thread`].
    Funneled(usize),
}

/// The right to call MPI, until it is dropped.
pub(super) struct CallGuard<'a> {
    mpi: &'a Mpi,
    /// None if calls are not serialized, or the thread held the lock already.
    held: Option<MutexGuard<'a, ()>>,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.mpi.lock_holder.store(0, Ordering::Relaxed);
        }
    }
}

/// A number that no other living thread has.
pub(super) fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// What to do without an MPI library. Why a file was refused is said only if it was asked for by its name.
fn not_found(choice: Option<&str>, refusals: &[String]) -> String {
    const ADVICE: &str = "install Open MPI or MPICH (Debian: apt install openmpi-bin)";
    match (choice, refusals) {
        (None, _) => format!("no MPI library was found; {ADVICE}, or set RESHARD_MPI to the path of one"),
        (Some(family @ ("openmpi" | "mpich" | "abi")), _) => {
            format!("no MPI library of the kind {family} was found; {ADVICE}, or name the path of one")
        }
        (Some(file), [why, ..]) => format!("the MPI library {file} cannot be loaded: {why}"),
        (Some(file), []) => format!("the MPI library {file} cannot be loaded"),
    }
}

impl Mpi {
    /// Finds and loads the MPI library that fits, once for the process.
    ///
    /// `choice`, or else the environment variable `RESHARD_MPI`, is `openmpi`, `mpich`, `abi` or the path of a library.
    /// Without it: the library that the process has loaded already; or one that fits the launcher; or any that is known.
    pub fn load(choice: Option<&str>) -> Result<&'static Mpi> {
        static LOADED: Mutex<Option<&'static Mpi>> = Mutex::new(None);
        let variable = std::env::var("RESHARD_MPI").ok().filter(|value| !value.is_empty());
        let choice = choice.or(variable.as_deref());
        let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(mpi) = *loaded {
            return match choice {
                Some(choice) if !mpi.fits(choice) => Err(Error::new(
                    ErrorKind::External,
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

    /// The library's name and version, such as `Open MPI 4.1.4` or `MPICH 4.0.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// True if C's handles are integers, as in the MPICH family; elsewhere they are pointers.
    pub fn has_integer_handles(&self) -> bool {
        self.interface == Interface::Mpich
    }

    /// True if the library is what the user chose.
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
        if search.accepts_loaded
            && let Some(library) = already_loaded()
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
        Err(Error::new(ErrorKind::External, not_found(choice, &refusals)))
    }

    /// Takes over an opened library.
    fn of(library: Library, choice: Option<&str>) -> Result<Self> {
        let interface = interface(&library)?;
        // SAFETY: the symbols are variables of the library; only their addresses are taken.
        let address = |name: &'static str| match unsafe { library.get::<*mut c_void>(name.as_bytes()) } {
            Ok(symbol) => Ok(symbol.as_raw_ptr().expose_provenance() as Raw),
            Err(_) => Err(Error::new(ErrorKind::External, format!("the MPI library has no {name}"))),
        };
        let abi = interface.abi(address)?;
        // SAFETY: the interface says which kind of handle the library has.
        let calls = unsafe {
            match interface {
                Interface::Mpich => CallTable::Integers(Calls::find(&library)?),
                Interface::OpenMpi | Interface::Standard => CallTable::Pointers(Calls::find(&library)?),
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
            sessions: AtomicUsize::new(0),
            threads: OnceLock::new(),
            call_lock: Mutex::new(()),
            lock_holder: AtomicUsize::new(0),
            keys: Mutex::new(None),
            duplicate_lock: Mutex::new(()),
            retired: Mutex::default(),
            is_ending: AtomicBool::new(false),
            at_end: Mutex::default(),
            _library: library,
        };
        let text = text::<VERSION_TEXT_BYTES>(|bytes, length| {
            // SAFETY: may be called before MPI begins; there is room for the longest text.
            each!(mpi, calls => unsafe { (calls.get_library_version)(bytes, length) })
        });
        mpi.version = short(&text);
        Ok(mpi)
    }

    /// Records that MPI has ended: from now on every call fails.
    pub(super) fn note_end(&self) {
        ENDED.store(true, Ordering::Relaxed);
    }

    /// Gives MPI up: a call has not returned, and until it does no other may be made. From now on every call fails, and MPI is not
    /// ended.
    pub(super) fn give_up(&self, why: String) {
        let _ = GIVEN_UP.set(why);
        ENDED.store(true, Ordering::Release);
    }

    /// The right to call MPI, to be held during the call. Fails if MPI has ended, this process is a fork, or this thread
    /// may not call MPI.
    pub(super) fn enter(&self) -> Result<CallGuard<'_>> {
        if is_forked() {
            return Err(forked_off());
        }
        check_not_ended()?;
        self.check_thread()?;
        let held = match self.threads.get() {
            // Reentrant: MPI may call an attribute function of ours during a call.
            Some(Threads::Serialized) if self.lock_holder.load(Ordering::Relaxed) != this_thread() => {
                let held = self.call_lock.lock().unwrap_or_else(PoisonError::into_inner);
                self.lock_holder.store(this_thread(), Ordering::Relaxed);
                Some(held)
            }
            _ => None,
        };
        let guard = CallGuard { mpi: self, held };
        // While this waited for its turn, another may have given MPI up.
        check_not_ended()?;
        Ok(guard)
    }

    /// Fails if MPI was begun for another thread alone.
    pub(crate) fn check_thread(&self) -> Result<()> {
        match self.threads.get() {
            Some(Threads::Funneled(thread)) if *thread != this_thread() => Err(Error::new(
                ErrorKind::External,
                "MPI was called by a second thread, but was begun for one; call it from the thread that began it",
            )),
            _ => Ok(()),
        }
    }

    /// Fails if MPI may not be called: see `enter`.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.enter().map(drop)
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
        Error::new(ErrorKind::External, format!("{call} failed: {text} (code {code}, {})", self.version))
    }
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpi({}, {:?})", self.version, self.interface)
    }
}

/// Fails once no call of MPI may be made any more.
fn check_not_ended() -> Result<()> {
    if !ENDED.load(Ordering::Acquire) {
        return Ok(());
    }
    let why = GIVEN_UP.get().map_or("MPI has ended in this process and cannot begin again", String::as_str);
    Err(Error::new(ErrorKind::External, why))
}

/// The MPI library that the process has loaded already, if there is one.
fn already_loaded() -> Option<Library> {
    let this = Library::this();
    // SAFETY: only asked whether it is there.
    if unsafe { this.get::<*mut c_void>(b"MPI_Init_thread") }.is_ok() {
        return Some(this);
    }
    // SAFETY: nothing is loaded, so nothing runs.
    known_names()
        .find_map(|name| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) }.ok())
}

/// What identifies the interface of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LibraryFacts {
    /// It has the variables in which Open MPI keeps its handles.
    has_open_mpi_handles: bool,
    /// The major version of the standard ABI that it reports; 0 if none.
    abi: c_int,
    /// The file of its functions.
    file: String,
    /// Its version text.
    version: String,
}

/// Identifies the interface of a library.
fn interface(library: &Library) -> Result<Interface> {
    type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: only the presence of the first symbol is tested; the standard gives the two functions these types in every
    // interface and lets them be called at any time. An address of a function tells the file it is in.
    let facts = unsafe {
        let has_open_mpi_handles = library.get::<*mut c_void>(b"ompi_mpi_comm_world").is_ok();
        if let Ok(version) = library.get::<AbiVersion>(b"MPI_Abi_get_version") {
            version(&raw mut major, &raw mut minor);
        }
        let version = match library.get::<Version>(b"MPI_Get_library_version") {
            Ok(version) => text::<VERSION_TEXT_BYTES>(|bytes, length| version(bytes, length)),
            Err(_) => String::new(),
        };
        let init = library.get::<*mut c_void>(b"MPI_Init_thread");
        let file = init.map_or(String::new(), |symbol| file_of(symbol.as_raw_ptr()));
        LibraryFacts { has_open_mpi_handles, abi: major.max(0), file, version }
    };
    interface_of(&facts)
}

/// The file that an address was loaded from.
///
/// # Safety
/// The address was found in a loaded library.
unsafe fn file_of(address: *mut c_void) -> String {
    // SAFETY: all of it may be zero: addresses that are none.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: writes one `Dl_info`, whose name, if there is one, is a C string that lives as long as the library.
    unsafe {
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return String::new();
        }
        std::ffi::CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    }
}

/// The interface of a library with these facts. An unknown library is refused: its handles would be misread.
fn interface_of(facts: &LibraryFacts) -> Result<Interface> {
    let file = facts.file.rsplit('/').next().unwrap_or_default();
    // A library for the standard ABI may rest on Open MPI's own, whose variables are found through it; and a library may
    // know the ABI without having it.
    if facts.abi >= 1 && (file.contains("mpi_abi") || !facts.has_open_mpi_handles) {
        return Ok(Interface::Standard);
    }
    if facts.has_open_mpi_handles {
        return Ok(Interface::OpenMpi);
    }
    if ["MPICH", "Intel(R) MPI", "MVAPICH"].iter().any(|name| facts.version.contains(name)) {
        return Ok(Interface::Mpich);
    }
    if facts.version.is_empty() {
        return Err(Error::new(
            ErrorKind::External,
            "the library that was loaded is no MPI library: it does not say its version; set RESHARD_MPI to openmpi, mpich, abi or the path of one",
        ));
    }
    Err(Error::new(
        ErrorKind::External,
        format!(
            "the MPI library {} calls itself {:?}, which is neither Open MPI nor of the MPICH family nor the standard ABI; set \
             RESHARD_MPI to openmpi, mpich, abi or the path of one that is",
            facts.file,
            short(&facts.version)
        ),
    ))
}

/// The text that a call writes.
fn text<const BYTES: usize>(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut bytes = vec![0u8; BYTES];
    let mut length: c_int = 0;
    if write(bytes.as_mut_ptr().cast(), &raw mut length) != SUCCESS {
        return "no text for this".to_string();
    }
    let length = usize::try_from(length).unwrap_or(0).min(BYTES);
    String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\0').trim().to_string()
}

/// Name and version out of the long text of a library.
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
    use super::{ENDED, LibraryFacts, Mpi, Threads, interface_of, short};
    use crate::abi::Interface;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    /// A call that never returns is given up while others wait for their turn: none of them may be made.
    #[test]
    fn who_waited_for_its_turn_learns_that_mpi_was_given_up() {
        // Loaded, not begun.
        let Ok(mpi) = Mpi::load(None) else { return };
        assert!(mpi.threads.set(Threads::Serialized).is_ok());
        let held = mpi.enter().unwrap();
        let waited = std::thread::scope(|scope| {
            let waits = scope.spawn(|| mpi.enter().map(drop));
            std::thread::sleep(Duration::from_millis(100));
            mpi.give_up("a call never returned".into());
            drop(held);
            waits.join().unwrap()
        });
        ENDED.store(false, Ordering::Release);
        let said = waited.unwrap_err().to_string();
        assert!(said.contains("a call never returned"), "{said}");
        assert!(mpi.enter().is_ok());
    }

    #[test]
    fn versions_are_short() {
        assert_eq!(short("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4"), "Open MPI 4.1.4");
        assert_eq!(short("MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7"), "MPICH 4.0.2");
        assert_eq!(short("Intel(R) MPI Library 2021.18.1 for Linux* OS\n"), "Intel MPI 2021.18.1");
    }

    #[test]
    fn interfaces_are_identified_by_positive_evidence() {
        let facts = |has_open_mpi_handles, abi, file: &str, version: &str| {
            interface_of(&LibraryFacts {
                has_open_mpi_handles,
                abi,
                file: file.into(),
                version: version.into(),
            })
        };
        let open_mpi = "Open MPI v5.0.8, package: x";
        assert_eq!(facts(true, 0, "/usr/lib/libmpi.so.40", open_mpi).unwrap(), Interface::OpenMpi);
        assert_eq!(facts(true, 1, "/usr/lib/libmpi.so.40", open_mpi).unwrap(), Interface::OpenMpi);
        // A profiling library that wraps it.
        assert_eq!(facts(true, 0, "/opt/libprofile.so", open_mpi).unwrap(), Interface::OpenMpi);
        // The standard ABI that rests on Open MPI's own library.
        assert_eq!(facts(true, 1, "/opt/lib/libmpi_abi.so.0", open_mpi).unwrap(), Interface::Standard);
        assert_eq!(facts(false, 1, "libmpi_abi.so.1", "MPICH Version: 5.0").unwrap(), Interface::Standard);
        for text in
            ["MPICH Version:\t4.0.2", "Intel(R) MPI Library 2021", "CRAY MPICH version 8", "MVAPICH2 Version"]
        {
            assert_eq!(facts(false, 0, "libmpi.so.12", text).unwrap(), Interface::Mpich);
        }
        let error = facts(false, 0, "/opt/libmpi.so", "SomeMPI 1.0").unwrap_err().to_string();
        assert!(error.contains("/opt/libmpi.so") && error.contains("SomeMPI 1.0"), "{error}");
        assert!(facts(false, 0, "/opt/libmpi.so", "").is_err());
    }
}
