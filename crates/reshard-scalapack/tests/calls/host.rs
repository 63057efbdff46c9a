//! A host program: MPI, the BLACS and ScaLAPACK's own routines, loaded as a program would; and ours beside them.

use crate::Int;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use reshard_mpi::{Comm, Mpi, Session};
use std::ffi::{CStr, CString, c_char, c_void};

reshard_scalapack::export!(crate::Int);

macro_rules! ours {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $(fn $name();)*
        }

        /// The address of one of our routines.
        fn our_routine(name: &str) -> *mut c_void {
            let found = match name {
                $(stringify!($name) => $name as *const () as *mut c_void,)*
                _ => panic!("no routine {name}"),
            };
            found
        }
    };
}

ours! {
    pigemr2d_ psgemr2d_ pdgemr2d_ pcgemr2d_ pzgemr2d_ pitrmr2d_ pstrmr2d_ pdtrmr2d_ pctrmr2d_ pztrmr2d_
    pigemr2do_ psgemr2do_ pdgemr2do_ pcgemr2do_ pzgemr2do_ pitrmr2do_ pstrmr2do_ pdtrmr2do_ pctrmr2do_ pztrmr2do_
    Cpigemr2d Cpsgemr2d Cpdgemr2d Cpcgemr2d Cpzgemr2d Cpitrmr2d Cpstrmr2d Cpdtrmr2d Cpctrmr2d Cpztrmr2d
    Cpigemr2do Cpsgemr2do Cpdgemr2do Cpcgemr2do Cpzgemr2do Cpitrmr2do Cpstrmr2do Cpdtrmr2do Cpctrmr2do Cpztrmr2do
    pstran_ pdtran_ pctranu_ pctranc_ pztranu_ pztranc_
    PDGEMR2D pdgemr2d pdgemr2d__ reshard_pdgemr2d_
}

/// Names the libraries of ScaLAPACK, in the order in which they are loaded, if they are not those of the system: files, with colons between.
pub const LIBRARIES: &str = "RESHARD_TEST_SCALAPACK";

/// The last error of our routines.
pub fn last_error() -> Option<String> {
    let text = reshard_last_error();
    // SAFETY: null, or a text that is never freed.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A host program.
pub struct Host {
    session: Option<Session>,
    /// ScaLAPACK, after what it needs.
    libraries: Vec<Library>,
}

/// The arguments of a call, of one process.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub letters: Option<[u8; 2]>,
    pub m: Int,
    pub n: Int,
    pub a: *mut u8,
    pub ia: Int,
    pub ja: Int,
    pub desca: &'a [Int; 9],
    pub b: *mut u8,
    pub ib: Int,
    pub jb: Int,
    pub descb: &'a [Int; 9],
    /// None for the `o` form.
    pub context: Option<Int>,
}

impl Host {
    /// Loads ScaLAPACK so that its names are seen by all, or by nobody else.
    pub fn new(hidden: bool) -> Self {
        let mpi = Mpi::load(None).unwrap();
        let flags = RTLD_LAZY | if hidden { RTLD_LOCAL } else { RTLD_GLOBAL };
        // SAFETY: well-known libraries whose initialisers are harmless.
        let open = |name: &str| unsafe { Library::open(Some(name), flags) };
        let libraries: Vec<Library> = match std::env::var(LIBRARIES) {
            Ok(names) => names.split(':').map(|name| open(name).unwrap()).collect(),
            Err(_) => {
                let family = if mpi.version().starts_with("Open MPI") { "openmpi" } else { "mpich" };
                let names = ["2.2", "2.1"].map(|version| format!("libscalapack-{family}.so.{version}"));
                vec![names.iter().find_map(|name| open(name).ok()).expect("ScaLAPACK is installed")]
            }
        };
        let host = Self { session: None, libraries };
        type Begin = unsafe extern "C" fn(*mut Int, *mut Int);
        // SAFETY: a function of the BLACS with this type, which begins MPI.
        unsafe {
            let begin = std::mem::transmute::<*mut c_void, Begin>(host.symbol("Cblacs_pinfo"));
            begin(&mut 0, &mut 0);
        }
        Self { session: Some(mpi.init().unwrap()), ..host }
    }

    /// Ends MPI, as such a program does.
    pub fn end(self) {
        type Exit = unsafe extern "C" fn(Int);
        let exit = self.symbol("Cblacs_exit");
        // SAFETY: a function of the BLACS with this type, called last.
        unsafe { std::mem::transmute::<*mut c_void, Exit>(exit)(0) };
        // What was kept is freed with MPI.
        assert_eq!(reshard_scalapack::communicators(), 0);
        // They may need each other until the process ends.
        std::mem::forget(self.libraries);
    }

    pub fn world(&self) -> &Comm {
        self.session.as_ref().expect("MPI has begun").world()
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: only the address is taken.
        let find = |library: &Library| unsafe { library.get::<*mut c_void>(name.as_bytes_with_nul()) };
        let found = self.libraries.iter().rev().find_map(|library| find(library).ok());
        found.unwrap_or_else(|| panic!("{} is in no library", name.to_string_lossy())).as_raw_ptr()
    }

    /// A context of a grid with these ranks of the world, row by row; -1 on others. All processes must call it.
    pub fn context(&self, rows: usize, columns: usize, ranks: &[usize]) -> Int {
        type Get = unsafe extern "C" fn(Int, Int, *mut Int);
        type Map = unsafe extern "C" fn(*mut Int, *mut Int, Int, Int, Int);
        let mut map: Vec<Int> = Vec::new();
        for column in 0..columns {
            map.extend((0..rows).map(|row| ranks[row * columns + column] as Int));
        }
        let mut context = 0;
        // SAFETY: functions of the BLACS with these types, called by all processes.
        unsafe {
            std::mem::transmute::<*mut c_void, Get>(self.symbol("Cblacs_get"))(0, 0, &raw mut context);
            let gridmap = std::mem::transmute::<*mut c_void, Map>(self.symbol("Cblacs_gridmap"));
            gridmap(&raw mut context, map.as_mut_ptr(), rows as Int, rows as Int, columns as Int);
        }
        if ranks.contains(&self.world().rank()) { context } else { -1 }
    }

    /// Destroys a context, if this process is of it.
    pub fn destroy(&self, context: Int) {
        type Exit = unsafe extern "C" fn(Int);
        if context >= 0 {
            // SAFETY: a live context.
            unsafe { std::mem::transmute::<*mut c_void, Exit>(self.symbol("Cblacs_gridexit"))(context) };
        }
    }

    /// Calls a routine that transposes, of ours or of the PBLAS, by its name.
    pub fn transpose(&self, ours: bool, name: &str, call: &TransposeCall<'_>) {
        type A = Address;
        type T = unsafe extern "C" fn(A, A, *const u8, *mut u8, A, A, A, *const u8, *mut u8, A, A, A);
        let routine = if ours { our_routine(name) } else { self.symbol(name) };
        let TransposeCall { m, n, alpha, a, ia, ja, desca, beta, c, ic, jc, descc } = call;
        // SAFETY: the routine has this type.
        unsafe {
            let routine = std::mem::transmute::<*mut c_void, T>(routine);
            let (desca, descc) = (desca.as_ptr(), descc.as_ptr());
            routine(m, n, alpha.as_ptr(), *a, ia, ja, desca, beta.as_ptr(), *c, ic, jc, descc);
        }
    }

    /// Calls a routine of ours, or of ScaLAPACK, by its name.
    pub fn call(&self, ours: bool, name: &str, call: &Call<'_>) {
        let routine = if ours { our_routine(name) } else { self.symbol(name) };
        match name.starts_with('C') {
            true => call.by_value(routine),
            false => call.by_address(routine),
        }
    }
}

/// The arguments of a call of p?tran, of one process.
pub struct TransposeCall<'a> {
    pub m: Int,
    pub n: Int,
    pub alpha: &'a [u8],
    pub a: *mut u8,
    pub ia: Int,
    pub ja: Int,
    pub desca: &'a [Int; 9],
    pub beta: &'a [u8],
    pub c: *mut u8,
    pub ic: Int,
    pub jc: Int,
    pub descc: &'a [Int; 9],
}

type Text = *const c_char;
type Address = *const Int;

impl Call<'_> {
    /// As C calls it.
    fn by_value(&self, routine: *mut c_void) {
        let Self { m, n, a, ia, ja, desca, b, ib, jb, descb, .. } = *self;
        let (desca, descb) = (desca.as_ptr(), descb.as_ptr());
        type G = unsafe extern "C" fn(Int, Int, *mut u8, Int, Int, Address, *mut u8, Int, Int, Address, Int);
        type T = unsafe extern "C" fn(
            Text,
            Text,
            Int,
            Int,
            *mut u8,
            Int,
            Int,
            Address,
            *mut u8,
            Int,
            Int,
            Address,
            Int,
        );
        let context = self.context.unwrap_or(0);
        // SAFETY: the routine has this type; one without a context ignores it.
        unsafe {
            match &self.letters {
                None => std::mem::transmute::<*mut c_void, G>(routine)(
                    m, n, a, ia, ja, desca, b, ib, jb, descb, context,
                ),
                Some(letters) => {
                    let [uplo, diag] = [0, 1].map(|k| (&raw const letters[k]).cast());
                    let routine = std::mem::transmute::<*mut c_void, T>(routine);
                    routine(uplo, diag, m, n, a, ia, ja, desca, b, ib, jb, descb, context);
                }
            }
        }
    }

    /// As Fortran calls it.
    fn by_address(&self, routine: *mut c_void) {
        let Self { m, n, a, ia, ja, desca, b, ib, jb, descb, .. } = *self;
        let (desca, descb) = (desca.as_ptr(), descb.as_ptr());
        type A = Address;
        type G = unsafe extern "C" fn(A, A, *mut u8, A, A, A, *mut u8, A, A, A, A);
        type T = unsafe extern "C" fn(Text, Text, A, A, *mut u8, A, A, A, *mut u8, A, A, A, A, usize, usize);
        let context = self.context.unwrap_or(0);
        let [m, n, ia, ja, ib, jb, context] = [&m, &n, &ia, &ja, &ib, &jb, &context].map(std::ptr::from_ref);
        // SAFETY: the routine has this type; one without a context ignores it.
        unsafe {
            match &self.letters {
                None => std::mem::transmute::<*mut c_void, G>(routine)(
                    m, n, a, ia, ja, desca, b, ib, jb, descb, context,
                ),
                Some(letters) => {
                    let [uplo, diag] = [0, 1].map(|k| (&raw const letters[k]).cast());
                    let routine = std::mem::transmute::<*mut c_void, T>(routine);
                    routine(uplo, diag, m, n, a, ia, ja, desca, b, ib, jb, descb, context, 1, 1);
                }
            }
        }
    }
}
