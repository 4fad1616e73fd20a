//! The program `pinfold`; see the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pinfold_cli::main()
}
