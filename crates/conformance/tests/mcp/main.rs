//! `pinfold mcp` at the other end of raw lines: what a client sees, what a person is asked, and what neither a message nor a
//! command can do. The official clients drive the same program in `crates/mcp/clients`.
//!
//! Tests are called `UID/CLAIM`, and `UID/BACKEND/CLAIM` where a backend could differ.

mod asks;
mod attacks;
mod clients;
mod ends;
mod fuzz;
mod http;
mod load;
mod plane;
mod tools;
mod wire;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::uids;
use pinfold_conformance::walls::{CONFINED, Walls};

type Claim = (&'static str, fn(&Walls) -> Result<(), String>);

fn main() {
    let arguments = Arguments::from_args();
    let claims: Vec<Claim> = [
        tools::CLAIMS,
        asks::CLAIMS,
        ends::CLAIMS,
        attacks::CLAIMS,
        fuzz::CLAIMS,
        http::CLAIMS,
        load::CLAIMS,
        clients::CLAIMS,
    ]
    .concat();
    let mut trials = Vec::new();
    for uid in uids() {
        for (name, claim) in &claims {
            let claim = *claim;
            let test = move || Ok::<(), Failed>(claim(&Walls::new(uid)?)?);
            trials.push(Trial::test(format!("{uid}/{name}"), test));
        }
        for backend in CONFINED {
            for (name, claim) in plane::CLAIMS {
                let claim = *claim;
                let test = move || Ok::<(), Failed>(claim(&Walls::new(uid)?, backend)?);
                trials.push(Trial::test(format!("{uid}/{}/{name}", backend.name()), test));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
