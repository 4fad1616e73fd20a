//! The program `pinfold-broker`; see the library.

#![forbid(unsafe_code)]

fn main() -> ! {
    pinfold_broker::run()
}
