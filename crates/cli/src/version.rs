//! `pinfold version`.

use crate::arguments::Version;
use crate::voice::{one_line, print, say};
use serde::Serialize;

#[derive(Serialize)]
struct Versions {
    name: &'static str,
    version: &'static str,
    os: &'static str,
    arch: &'static str,
}

/// Prints the version and returns the exit status.
pub(crate) fn version(arguments: &Version) -> u8 {
    let versions = Versions {
        name: "pinfold",
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    let line = if arguments.json { one_line(&versions) } else { format!("{} {}", versions.name, versions.version) };
    match print(&(line + "\n")) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("error: standard output: {error}"));
            125
        }
    }
}
