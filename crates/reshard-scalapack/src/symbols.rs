//! Symbols of the host program, wherever they are.
//!
//! A program may have loaded ScaLAPACK so that its names are seen by nobody else (`RTLD_LOCAL`, as Python does): then asking for a name
//! among all is in vain, and every loaded library is asked for itself.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// A library that the process has loaded.
struct Loaded {
    name: CString,
}

/// All libraries that the process has loaded, in the order in which names are looked up. Without this one.
fn loaded() -> Vec<Loaded> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: libc::size_t, list: *mut c_void) -> c_int {
        // SAFETY: the system passes an entry with a C string, which may be null, and the list that was given below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*list.cast::<Vec<Loaded>>()).push(Loaded { name: CStr::from_ptr(name).to_owned() });
            }
        }
        0
    }
    let mut all: Vec<Loaded> = Vec::new();
    // SAFETY: the function and the list fit together; the list is not used by anybody else meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut all).cast()) };
    let own = file_of(loaded as *const c_void);
    all.retain(|library| Some(&library.name) != own.as_ref());
    all
}

/// The file that holds an address.
fn file_of(address: *const c_void) -> Option<CString> {
    // SAFETY: all of it may be zero: addresses that are none.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: writes one `Dl_info`, whose name, if there is one, is a C string.
    unsafe {
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_owned())
    }
}

/// The address of a name in the host program or one of its libraries, other than this one; and the file that has it.
pub fn find(name: &CStr) -> Option<(*mut c_void, String)> {
    let own = file_of(find as *const c_void);
    let elsewhere = |address: *mut c_void| {
        let file = file_of(address);
        (!address.is_null() && file != own).then(|| {
            let file = file.map_or(String::new(), |file| file.to_string_lossy().into_owned());
            (address, file)
        })
    };
    // SAFETY: names are C strings.
    let among_all = [libc::RTLD_NEXT, libc::RTLD_DEFAULT]
        .into_iter()
        .find_map(|which| elsewhere(unsafe { libc::dlsym(which, name.as_ptr()) }));
    among_all.or_else(|| {
        loaded().into_iter().find_map(|library| {
            // SAFETY: nothing is loaded, so nothing runs. The handle is not closed: its library stays as long as the process.
            let handle = unsafe {
                libc::dlopen(library.name.as_ptr().cast::<c_char>(), libc::RTLD_NOLOAD | libc::RTLD_LAZY)
            };
            if handle.is_null() {
                return None;
            }
            // SAFETY: an open handle and a C string.
            elsewhere(unsafe { libc::dlsym(handle, name.as_ptr()) })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_loaded_libraries_are_found_with_their_file() {
        let (address, file) = find(c"clock_gettime").unwrap();
        assert!(!address.is_null() && file.contains("libc"), "{file}");
        assert!(find(c"no_such_name_anywhere").is_none());
    }

    #[test]
    fn the_program_itself_is_not_among_the_loaded() {
        let all = loaded();
        assert!(
            all.iter().any(|library| library.name.to_string_lossy().contains("libc")),
            "no C library is loaded"
        );
    }
}
