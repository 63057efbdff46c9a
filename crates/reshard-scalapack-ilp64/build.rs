//! Gives the library a name by which programs that were linked with it find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libreshard_scalapack_ilp64.so.0");
}
