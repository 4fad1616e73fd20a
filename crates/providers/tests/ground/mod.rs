//! Where tests that start the launcher stand: the program, and a directory for their files. For every crate above this one too.

use std::path::{Path, PathBuf};

/// The launcher: in `PINFOLD_BIN_DIR`, or beside the test programs.
pub(crate) fn launcher() -> PathBuf {
    let directory = std::env::var_os("PINFOLD_BIN_DIR").map_or_else(
        || std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().to_owned(),
        PathBuf::from,
    );
    let path = directory.join("pinfold-run");
    assert!(path.is_file(), "{path:?} is missing: run `cargo build -p pinfold-launcher` first");
    path
}

/// Not below `/tmp`: a private temp area would hide what is to be refused.
pub(crate) fn directory() -> tempfile::TempDir {
    let configured = std::env::var_os("PINFOLD_TEST_DIR").map(PathBuf::from);
    let places = configured.into_iter().chain(["/var/lib".into(), env!("CARGO_TARGET_TMPDIR").into()]);
    let make = |place: PathBuf| tempfile::Builder::new().prefix("pinfold-test-").tempdir_in(place).ok();
    places.filter_map(make).next().expect("a directory for tests")
}
