//! What must not reach bubblewrap itself: it is dynamically linked, and runs before there is a wall.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Whether a variable makes the dynamic loader or the C library load something (ld.so(8)).
pub(crate) fn steers_the_loader(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"LD_") || matches!(name, b"GLIBC_TUNABLES" | b"GCONV_PATH" | b"LOCPATH" | b"NLSPATH")
}

/// Names and values.
type Environment = Vec<(OsString, OsString)>;

/// Splits an environment into what bubblewrap may see and what only the command inside gets.
pub(crate) fn split(environment: Environment) -> (Environment, Environment) {
    environment.into_iter().partition(|(name, _)| !steers_the_loader(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_bubblewrap_is_not_steered() {
        let variable = |name: &str| (OsString::from(name), OsString::from("x"));
        let (outer, inner) = split(["PATH", "LD_PRELOAD", "LD", "GCONV_PATH"].map(variable).into());
        assert_eq!(outer, [variable("PATH"), variable("LD")]);
        assert_eq!(inner, [variable("LD_PRELOAD"), variable("GCONV_PATH")]);
    }
}
