//! The names of a library: those of Fortran as compilers write them, those of C, and prefixed ones.
//!
//! Fortran passes the addresses of integers and C their values; p?trmr2d has two letters first, of which Fortran passes the lengths
//! last; the `o` forms have no context. All is one macro with these as arguments. The PBLAS have Fortran's names alone.

/// Exports all routines, for integers of one width.
#[macro_export]
macro_rules! export {
    ($integer:ty) => {
        $crate::export_element!($integer, Integer, "i", "I");
        $crate::export_element!($integer, Single, "s", "S");
        $crate::export_element!($integer, Double, "d", "D");
        $crate::export_element!($integer, Complex, "c", "C");
        $crate::export_element!($integer, DoubleComplex, "z", "Z");

        $crate::export_transpose!($integer, Single, false, "pstran", "PSTRAN");
        $crate::export_transpose!($integer, Double, false, "pdtran", "PDTRAN");
        $crate::export_transpose!($integer, Complex, false, "pctranu", "PCTRANU");
        $crate::export_transpose!($integer, Complex, true, "pctranc", "PCTRANC");
        $crate::export_transpose!($integer, DoubleComplex, false, "pztranu", "PZTRANU");
        $crate::export_transpose!($integer, DoubleComplex, true, "pztranc", "PZTRANC");

        /// The error of the last call of this process, if errors return (`RESHARD_ERRORS=return`); null if it had none.
        #[unsafe(no_mangle)]
        pub extern "C" fn reshard_last_error() -> *const std::ffi::c_char {
            $crate::last_error()
        }

        /// Called when the library is loaded.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = $crate::start;
    };
}

/// Exports the routines of one type of elements.
#[doc(hidden)]
#[macro_export]
macro_rules! export_element {
    ($integer:ty, $element:ident, $small:literal, $large:literal) => {
        $crate::export_routine!(
            $integer,
            $element,
            ($small, "gemr2d"),
            ($large, "GEMR2D"),
            (),
            (context),
            ()
        );
        $crate::export_routine!($integer, $element, ($small, "gemr2do"), ($large, "GEMR2DO"), (), (), ());
        $crate::export_routine!(
            $integer,
            $element,
            ($small, "trmr2d"),
            ($large, "TRMR2D"),
            (uplo, diag),
            (context),
            (1, 1)
        );
        $crate::export_routine!(
            $integer,
            $element,
            ($small, "trmr2do"),
            ($large, "TRMR2DO"),
            (uplo, diag),
            (),
            (1, 1)
        );
    };
}

/// Exports one routine under all its names.
#[doc(hidden)]
#[macro_export]
macro_rules! export_routine {
    (
        $integer:ty, $element:ident, ($small:literal, $name:literal), ($large:literal, $capitals:literal),
        $letters:tt, $context:tt, $lengths:tt
    ) => {
        $crate::export_routine!(
            @fortran $integer, $element, $letters, $context, $lengths, concat!("p", $small, $name, "_\0"),
            (
                concat!("p", $small, $name, "_"),
                concat!("p", $small, $name),
                concat!("p", $small, $name, "__"),
                concat!("P", $large, $capitals),
                concat!("reshard_p", $small, $name, "_")
            )
        );
        $crate::export_name!(
            $integer, $integer, $element, $letters, $context, (),
            concat!("Cp", $small, $name), concat!("Cp", $small, $name, "\0")
        );
    };
    (
        @fortran $integer:ty, $element:ident, $letters:tt, $context:tt, $lengths:tt, $real:expr, ($($name:expr),*)
    ) => {
        $($crate::export_name!(
            $integer, *const $integer, $element, $letters, $context, $lengths, $name, $real
        );)*
    };
}

/// Exports one name. `$number` is how an integer is passed, `$real` the name of the same routine in the reference, which ends with 0.
#[doc(hidden)]
#[macro_export]
macro_rules! export_name {
    (
        $integer:ty, $number:ty, $element:ident, ($($letter:ident),*), ($($context:ident)?), ($($length:literal),*),
        $name:expr, $real:expr
    ) => {
        const _: () = {
            #[allow(unused)]
            type Letter = *const std::ffi::c_char;
            type Real = unsafe extern "C" fn(
                $($crate::instead!($letter, Letter),)* $number, $number, *mut u8, $number, $number, *const $integer,
                *mut u8, $number, $number, *const $integer, $($crate::instead!($context, $number),)?
                $($crate::instead!($length, usize)),*
            );
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn exported(
                $($letter: Letter,)* m: $number, n: $number, a: *mut u8, ia: $number, ja: $number, desca: *const $integer,
                b: *mut u8, ib: $number, jb: $number, descb: *const $integer, $($context: $number)?
            ) {
                // SAFETY: the caller passes what the routine takes; the routine of that name takes the same.
                unsafe {
                    let (a_side, b_side) = ((a, ia, ja, desca), (b, ib, jb, descb));
                    let element = $crate::Element::$element;
                    let call = $crate::arguments::<$integer, $number>(
                        element, &[$($letter),*], [m, n], a_side, b_side, &[$($context)?],
                    );
                    let name = std::ffi::CStr::from_bytes_with_nul_unchecked($real.as_bytes());
                    $crate::call(&call, name, |real| {
                        std::mem::transmute::<*mut std::ffi::c_void, Real>(real)(
                            $($letter,)* m, n, a, ia, ja, desca, b, ib, jb, descb, $($context,)? $($length),*
                        );
                    });
                }
            }
        };
    };
}

/// Exports one routine of the PBLAS under all its names.
#[doc(hidden)]
#[macro_export]
macro_rules! export_transpose {
    ($integer:ty, $element:ident, $conjugated:literal, $name:literal, $capitals:literal) => {
        $crate::export_transpose!(@names $integer, $element, $conjugated, concat!($name, "_\0"), (
            concat!($name, "_"),
            $name,
            concat!($name, "__"),
            $capitals,
            concat!("reshard_", $name, "_")
        ));
    };
    (@names $integer:ty, $element:ident, $conjugated:literal, $real:expr, ($($name:expr),*)) => {
        $(const _: () = {
            type Int = *const $integer;
            type Real = unsafe extern "C" fn(
                Int, Int, *const u8, *mut u8, Int, Int, Int, *const u8, *mut u8, Int, Int, Int,
            );
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn exported(
                m: Int, n: Int, alpha: *const u8, a: *mut u8, ia: Int, ja: Int, desca: Int, beta: *const u8, c: *mut u8,
                ic: Int, jc: Int, descc: Int,
            ) {
                // SAFETY: the caller passes what the routine takes; the routine of that name takes the same.
                unsafe {
                    let (a_side, c_side) = ((a, ia, ja, desca), (c, ic, jc, descc));
                    let element = $crate::Element::$element;
                    let call = $crate::transposing::<$integer>(
                        element, $conjugated, [m, n], a_side, c_side, [alpha, beta],
                    );
                    let name = std::ffi::CStr::from_bytes_with_nul_unchecked($real.as_bytes());
                    $crate::call(&call, name, |real| {
                        std::mem::transmute::<*mut std::ffi::c_void, Real>(real)(
                            m, n, alpha, a, ia, ja, desca, beta, c, ic, jc, descc,
                        );
                    });
                }
            }
        };)*
    };
}

/// The second of two types, for a list that is as long as one of names.
#[doc(hidden)]
#[macro_export]
macro_rules! instead {
    ($name:tt, $type:ty) => {
        $type
    };
}
