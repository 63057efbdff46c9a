//! Gives the library the name by which programs that were linked with it find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libreshard.so.0");
}
