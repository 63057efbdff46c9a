//! A host program: MPI, the BLACS and ScaLAPACK's own routines, loaded as a program would; and ours beside them.

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use reshard_mpi::{Comm, Mpi, Session};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

reshard_scalapack::export!(i32);

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

/// The last error of our routines.
pub fn last_error() -> Option<String> {
    let text = reshard_last_error();
    // SAFETY: null, or a text that is never freed.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A host program.
pub struct Host {
    session: Session,
    scalapack: Library,
}

/// The arguments of a call, of one process.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub letters: Option<[u8; 2]>,
    pub m: c_int,
    pub n: c_int,
    pub a: *mut u8,
    pub ia: c_int,
    pub ja: c_int,
    pub desca: &'a [c_int; 9],
    pub b: *mut u8,
    pub ib: c_int,
    pub jb: c_int,
    pub descb: &'a [c_int; 9],
    /// None for the `o` form.
    pub context: Option<c_int>,
}

impl Host {
    /// Loads ScaLAPACK so that its names are seen by all, or by nobody else.
    pub fn new(hidden: bool) -> Self {
        let mpi = Mpi::load(None).unwrap();
        let names: &[&str] = match mpi.version().starts_with("Open MPI") {
            true => &["libscalapack-openmpi.so.2.2", "libscalapack-openmpi.so.2.1"],
            false => &["libscalapack-mpich.so.2.2", "libscalapack-mpich.so.2.1"],
        };
        let flags = RTLD_NOW | if hidden { RTLD_LOCAL } else { RTLD_GLOBAL };
        // SAFETY: a well-known library whose initialisers are harmless.
        let open = |name: &&str| unsafe { Library::open(Some(*name), flags) }.ok();
        let scalapack = names.iter().find_map(open).expect("ScaLAPACK is installed");
        type Begin = unsafe extern "C" fn(*mut c_int, *mut c_int);
        // SAFETY: a function of the BLACS with this type, which begins MPI.
        unsafe {
            let begin = *scalapack.get::<Begin>(b"Cblacs_pinfo").unwrap();
            begin(&mut 0, &mut 0);
        }
        Self { session: mpi.init().unwrap(), scalapack }
    }

    /// Ends MPI, as such a program does.
    pub fn end(self) {
        type Exit = unsafe extern "C" fn(c_int);
        let exit = self.symbol("Cblacs_exit");
        // SAFETY: a function of the BLACS with this type, called last.
        unsafe { std::mem::transmute::<*mut c_void, Exit>(exit)(0) };
    }

    pub fn world(&self) -> &Comm {
        self.session.world()
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: only the address is taken.
        unsafe { self.scalapack.get::<*mut c_void>(name.as_bytes_with_nul()) }.unwrap().as_raw_ptr()
    }

    /// A context of a grid with these ranks of the world, row by row; -1 on others. All processes must call it.
    pub fn context(&self, rows: usize, columns: usize, ranks: &[usize]) -> c_int {
        type Get = unsafe extern "C" fn(c_int, c_int, *mut c_int);
        type Map = unsafe extern "C" fn(*mut c_int, *mut c_int, c_int, c_int, c_int);
        let mut map: Vec<c_int> = Vec::new();
        for column in 0..columns {
            map.extend((0..rows).map(|row| ranks[row * columns + column] as c_int));
        }
        let mut context = 0;
        // SAFETY: functions of the BLACS with these types, called by all processes.
        unsafe {
            std::mem::transmute::<*mut c_void, Get>(self.symbol("Cblacs_get"))(0, 0, &raw mut context);
            let gridmap = std::mem::transmute::<*mut c_void, Map>(self.symbol("Cblacs_gridmap"));
            gridmap(&raw mut context, map.as_mut_ptr(), rows as c_int, rows as c_int, columns as c_int);
        }
        if ranks.contains(&self.world().rank()) { context } else { -1 }
    }

    /// Destroys a context, if this process is of it.
    pub fn destroy(&self, context: c_int) {
        type Exit = unsafe extern "C" fn(c_int);
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
    pub m: c_int,
    pub n: c_int,
    pub alpha: &'a [u8],
    pub a: *mut u8,
    pub ia: c_int,
    pub ja: c_int,
    pub desca: &'a [c_int; 9],
    pub beta: &'a [u8],
    pub c: *mut u8,
    pub ic: c_int,
    pub jc: c_int,
    pub descc: &'a [c_int; 9],
}

type Text = *const c_char;
type Address = *const c_int;
type Int = c_int;

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
