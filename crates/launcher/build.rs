//! Linker arguments of the two binaries: no start-up files, no C library, nothing dynamic, fixed addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,noexecstack"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
}
