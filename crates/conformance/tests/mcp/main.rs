//! `pinfold mcp` at the other end of raw lines: what a client sees, what a person is asked, and what neither a message nor a
//! command can do. The official clients drive the same program in `crates/mcp/clients`.
//!
//! Tests are called `UID/CLAIM`.

mod asks;
mod attacks;
mod clients;
mod ends;
mod http;
mod tools;
mod wire;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::uids;
use pinfold_conformance::walls::Walls;

type Claim = (&'static str, fn(&Walls) -> Result<(), String>);

fn main() {
    let arguments = Arguments::from_args();
    let claims: Vec<Claim> =
        [tools::CLAIMS, asks::CLAIMS, ends::CLAIMS, attacks::CLAIMS, http::CLAIMS, clients::CLAIMS].concat();
    let mut trials = Vec::new();
    for uid in uids() {
        for (name, claim) in &claims {
            let claim = *claim;
            let test = move || Ok::<(), Failed>(claim(&Walls::new(uid)?)?);
            trials.push(Trial::test(format!("{uid}/{name}"), test));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
