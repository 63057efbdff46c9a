//! Gives the library the name by which programs that were linked with it find it: until version 1 each minor version is another interface.
//! What MPI was told to call when it ends must be there then, also in a program that has closed the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let interface = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libreshard_scalapack_ilp64.so.{interface}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
