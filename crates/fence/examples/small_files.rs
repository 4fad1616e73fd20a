//! Writes and reads many small files, by this crate or by the standard library, and prints what it took in microseconds
//! per file: `small_files fence|std|plain COUNT synced|unsynced DIRECTORY`. Used by `cargo xtask bench fence`.
//!
//! `std` is what careful code does without this crate: a file beside, a rename over. `plain` truncates and writes.

use pinfold_fence::{Abort, Durability, Fence, FenceOptions, Intent};
use pinfold_policy::{ExecutionPolicy, SandboxMode};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

const CONTENT: &[u8] = &[b'x'; 512];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, how, count, durability, directory] = words.as_slice() else {
        eprintln!("usage: small_files fence|std|plain COUNT synced|unsynced DIRECTORY");
        std::process::exit(2);
    };
    let count: usize = count.parse().expect("COUNT is a number");
    let synced = durability == "synced";
    let directory = Path::new(directory);
    let names: Vec<_> = (0..count).map(|number| format!("file-{number}")).collect();
    let durability = if synced { Durability::Synced } else { Durability::Unsynced };
    let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
    let fence = Fence::open(&policy, FenceOptions { durability, ..FenceOptions::default() }).expect("a fence");
    let begun = Instant::now();
    for name in &names {
        match how.as_str() {
            "fence" => {
                let abort = Abort::default();
                fence.write(Path::new(name), CONTENT, &Intent::Any, &abort).expect("written");
            }
            "std" => replace(directory, name, synced).expect("written"),
            _ => std::fs::write(directory.join(name), CONTENT).expect("written"),
        }
    }
    let written = begun.elapsed();
    let begun = Instant::now();
    for name in &names {
        let bytes = match how.as_str() {
            "fence" => fence.read_bytes(Path::new(name), 1 << 20).expect("read").bytes,
            _ => std::fs::read(directory.join(name)).expect("read"),
        };
        assert_eq!(bytes, CONTENT);
    }
    let read = begun.elapsed();
    let each = |took: std::time::Duration| took.as_secs_f64() * 1e6 / count as f64;
    println!("{:.3} {:.3}", each(written), each(read));
}

fn replace(directory: &Path, name: &str, synced: bool) -> std::io::Result<()> {
    let beside = directory.join(format!(".{name}.new"));
    let mut file = File::create_new(&beside)?;
    file.write_all(CONTENT)?;
    if synced {
        file.sync_all()?;
    }
    std::fs::rename(&beside, directory.join(name))?;
    if synced {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}
