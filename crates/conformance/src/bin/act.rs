//! Does one thing to one path and prints `ok`, followed for `read` by what was there, or the error's name: for comparing what
//! `pinfold explain` answers with what happens.
//!
//! `pinfold-act write|create|make-directory|remove|rename|change-metadata|read PATH`; `rename` gives the path another last name.

use pinfold_conformance::errno::Errno;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

fn act(operation: &str, path: &Path) -> io::Result<Vec<u8>> {
    let nothing = |()| Vec::new();
    match operation {
        "write" => fs::OpenOptions::new().write(true).open(path)?.write_all(b"other").map(nothing),
        "create" => fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map(|_| Vec::new()),
        "make-directory" => fs::create_dir(path).map(nothing),
        "remove" if fs::symlink_metadata(path)?.is_dir() => fs::remove_dir(path).map(nothing),
        "remove" => fs::remove_file(path).map(nothing),
        "rename" => {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(".moved");
            fs::rename(path, path.with_file_name(name)).map(nothing)
        }
        "change-metadata" => {
            let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
            fs::set_permissions(path, fs::Permissions::from_mode(mode ^ 0o010)).map(nothing)
        }
        "read" if fs::metadata(path)?.is_dir() => {
            let names: io::Result<Vec<Vec<u8>>> =
                fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_vec())).collect();
            let mut names = names?;
            names.sort();
            Ok(names.join(&b'/'))
        }
        "read" => fs::read(path),
        _ => panic!("see the head of this file"),
    }
}

fn main() {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [operation, path] = words.as_slice() else { panic!("see the head of this file") };
    match act(operation.to_str().expect("a word"), Path::new(path)) {
        Ok(found) => println!("ok {:?}", std::ffi::OsStr::from_bytes(&found)),
        Err(error) => println!("{}", Errno(error.raw_os_error().unwrap_or(0))),
    }
}
