//! The race: a process that swaps names under the fence's feet, and the operations that it is to lead out. Shared with the
//! conformance suite, where that process is confined by `pinfold run`.

#![allow(dead_code)] // each test program uses a part

use pinfold_fence::edit::Replacement;
use pinfold_fence::search::SearchOptions;
use pinfold_fence::{Abort, Fence, FenceOptions, FsError, Intent, Permissions, Replace, Resolver};
use pinfold_policy::{ExecutionPolicy, Restrictions, SandboxMode};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a race is: at least so many operations (`PINFOLD_RACE_OPERATIONS`), and so many seconds
/// (`PINFOLD_RACE_SECONDS`).
pub(crate) fn length(operations: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (number("PINFOLD_RACE_OPERATIONS").unwrap_or(operations), number("PINFOLD_RACE_SECONDS").unwrap_or(0))
}

/// Lays out a workspace, and a place outside of which one file has a second name inside.
pub(crate) fn lay_out(ws: &Path, out: &Path) {
    std::fs::create_dir_all(ws.join("deep/x")).unwrap();
    std::fs::create_dir_all(ws.join("d")).unwrap();
    std::fs::write(ws.join("d/f"), "inside").unwrap();
    std::fs::write(out.join("f"), "outside").unwrap();
    std::fs::write(out.join("g"), "shared").unwrap();
    std::fs::hard_link(out.join("g"), ws.join("alias")).unwrap();
}

/// What must not change outside: names, contents, modes and times.
pub(crate) fn outside(out: &Path) -> Vec<(PathBuf, String, u32, i64, i64)> {
    let mut found: Vec<_> = std::fs::read_dir(out)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let it = std::fs::symlink_metadata(&path).unwrap();
            let content = std::fs::read_to_string(&path).unwrap_or_else(|error| error.to_string());
            (path, content, it.mode(), it.mtime(), it.mtime_nsec())
        })
        .collect();
    found.sort();
    found
}

/// Swaps names as fast as it can, by the two ways there are: at once, and step by step. A confined one says `racing` once
/// it begins, or `escaped` if it can write outside itself.
///
/// It works by descriptors of directories of the workspace, so that it is not led out itself.
pub(crate) fn swap(ws: &Path, out: &Path) {
    let open = |name: &str| File::open(ws.join(name)).unwrap();
    let (top, d, deep) = (open("."), open("d"), open("deep"));
    let exchange = |one: (&File, &str), other: (&File, &str)| {
        // Refusals are expected: the fence moves and removes, too.
        let _ = renameat_with(one.0, one.1, other.0, other.1, RenameFlags::EXCHANGE);
    };
    let link = |to: &Path, at: &File, name: &str| {
        let _ = rustix::fs::symlinkat(to, at, name);
    };
    link(out, &top, "link");
    link(&out.join("f"), &top, "file-link");
    link(Path::new("../out"), &deep, "link");
    // Where pipes cannot be made, there is none to be swapped.
    let _ = rustix::fs::mknodat(&top, "pipe", FileType::Fifo, Mode::RWXU, 0);
    if std::env::var_os("PINFOLD_RACER_IS_CONFINED").is_some() {
        println!("{}", if File::create(out.join("racer")).is_ok() { "escaped" } else { "racing" });
    }
    let parent = rustix::process::getppid();
    let mut round = 0_u32;
    while rustix::process::getppid() == parent {
        round = round.wrapping_add(1);
        exchange((&top, "d"), (&top, "link"));
        // Half of the time nothing but this, as fast as it goes: the window of a walk is small.
        if round / 256 % 2 == 1 {
            continue;
        }
        exchange((&deep, "x"), (&deep, "link"));
        if round.is_multiple_of(3) {
            exchange((&d, "f"), (&top, "file-link"));
        }
        if round.is_multiple_of(5) {
            exchange((&d, "f"), (&top, if round.is_multiple_of(2) { "alias" } else { "pipe" }));
        }
        if round.is_multiple_of(7) {
            let _ = rustix::fs::renameat(&top, "deep", &top, "moved");
            link(out, &top, "deep");
            let _ = rustix::fs::unlinkat(&top, "deep", AtFlags::empty());
            let _ = rustix::fs::renameat(&top, "moved", &top, "deep");
        }
        if round.is_multiple_of(13) {
            // What the fence is writing right now.
            for entry in rustix::fs::Dir::read_from(&d).into_iter().flatten().flatten() {
                if let Ok(name) = entry.file_name().to_str()
                    && name.starts_with(".pinfold-")
                {
                    exchange((&d, name), (&top, "file-link"));
                }
            }
        }
        if round.is_multiple_of(31) {
            let _ = rustix::fs::mkdirat(&deep, "x", Mode::RWXU);
            let _ = rustix::fs::unlinkat(&d, "made", AtFlags::empty());
            link(out, &d, "made");
        }
    }
}

/// The fence of the race: reading outside is denied, so that a read that was led out would be seen.
pub(crate) fn fence(ws: &Path, out: &Path, resolver: Resolver) -> Fence {
    let restrictions = Restrictions { denied_reads: vec![out.to_owned()], ..Restrictions::default() };
    let durability = pinfold_fence::Durability::Unsynced;
    let options = FenceOptions { restrictions, durability, resolver: Some(resolver), ..FenceOptions::default() };
    Fence::open(&ExecutionPolicy::new(SandboxMode::WorkspaceWrite, ws), options).unwrap()
}

/// One operation; what is read is never what lies behind a link to the outside.
fn operate(fence: &Fence, number: u64) -> Result<(), FsError> {
    let abort = Abort::default();
    let path = Path::new;
    match number % 16 {
        0..=2 => fence.write(path("d/f"), b"inside", &Intent::Any, &abort).map(drop),
        3 => fence.write(path("deep/x/new"), b"inside", &Intent::CreateIfAbsent, &abort).map(drop),
        4 => fence.write(path("d/made/by/us"), b"inside", &Intent::Any, &abort).map(drop),
        5 => {
            let replacement = Replacement { old: "inside", new: "inside", all: true };
            fence.edit(path("d/f"), &replacement, &Intent::Any, &abort).map(drop)
        }
        6 => fence.remove(path("d/made"), true).map(drop),
        7 => fence.rename(path("deep/x/new"), path("d/moved"), Replace::Files).map(drop),
        8 => fence.copy(path("d/f"), path("deep/x/copy"), Replace::Files).map(drop),
        9 => fence.set_permissions(path("d/f"), Permissions::Exactly(0o644 - (number as u32 / 16 % 2))).map(drop),
        10 => fence.touch(path("d/f")).map(drop),
        11 => fence.copy_tree(path("d"), path("deep/x/tree"), Replace::Files).map(drop),
        12 => fence.remove(path("deep/x/tree"), true).map(drop),
        13 => fence.create_directory(path("deep/x/made/below"), true).map(drop),
        14 => fence.glob(path("deep"), "**", &SearchOptions::default()).map(|found| {
            assert!(!found.results.iter().any(|it| it.ends_with("link/f")), "led out: {found:?}");
        }),
        _ => fence.read_text(path("d/f")).map(|(text, _)| assert_ne!(text, "outside", "led out")),
    }
}

/// Does operations until there are enough and enough time has passed; counts what came of them, by code.
pub(crate) fn race(fence: &Fence, (operations, seconds): (u64, u64)) -> BTreeMap<String, u64> {
    let begun = Instant::now();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut number = 0;
    while number < operations || begun.elapsed() < Duration::from_secs(seconds) {
        let answer = operate(fence, number);
        let kind = answer.err().map_or_else(|| "done".to_owned(), |error| error.code().to_string());
        *seen.entry(kind).or_default() += 1;
        number += 1;
    }
    println!("{number} operations in {:?}: {seen:?}", begun.elapsed());
    seen
}
