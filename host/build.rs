//! Asks the linker for a build ID, which tells builds of the host apart, because not every linker makes one unasked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id");
}
