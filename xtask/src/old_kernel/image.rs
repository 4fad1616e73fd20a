//! The files that the older kernel finds in memory when it starts: an archive in the form that cpio calls `newc`, as the
//! kernel's Documentation/driver-api/early-userspace/buffer-format.rst has it. Everything in it belongs to root.

use crate::workspace::output;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the parts come from.
pub(super) struct Parts<'a> {
    /// The kernel's modules.
    pub(super) modules: PathBuf,
    /// The folder with `init` and `checks`.
    pub(super) checks: PathBuf,
    /// Our programs.
    pub(super) programs: PathBuf,
    /// Test programs: name and path.
    pub(super) tests: &'a [(String, PathBuf)],
}

/// A disk in memory, and devices for attempts to reach for.
const MODULES: [&str; 3] = ["drivers/block/brd.ko", "drivers/net/tun.ko", "fs/fuse/fuse.ko"];

/// Programs of the host that tests or attempts start and BusyBox does not replace: it is one program under many names, and
/// a copy under another name is none of them.
const OF_THE_HOST: [&str; 6] =
    ["/bin/true", "/usr/bin/install", "/usr/bin/bwrap", "/usr/bin/setpriv", "/usr/bin/unshare", "/usr/bin/python3"];

/// Of Python's library, what is no test, no tool and no cache.
const NOT_OF_PYTHON: [&str; 10] = [
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "distutils",
    "pydoc_data",
    "ensurepip",
    "tkinter",
    "asyncio",
];

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";

/// Writes the archive; returns the names of the checks in it.
pub(super) fn write(to: &Path, parts: &Parts) -> Result<Vec<String>, String> {
    let mut tree = Tree::default();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().map(Path::new).find(|path| path.is_file());
    let busybox = busybox.ok_or("busybox is missing: install Debian's busybox-static (.ci/run does)")?;
    tree.program("bin/busybox", busybox)?;
    tree.link("bin/sh", "busybox");
    for name in OF_THE_HOST {
        tree.program(name.trim_start_matches('/'), Path::new(name))?;
    }
    let library = python()?;
    tree.folder(Path::new(&library))?;
    for path in crate::ci::our_programs(&parts.programs)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tree.program(&format!("opt/pinfold/{name}"), &path)?;
    }
    for (name, path) in parts.tests {
        tree.program(&format!("opt/pinfold/test-{name}"), path)?;
    }
    for module in MODULES {
        let path = parts.modules.join(module);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tree.file(format!("lib/{name}"), 0o644, read(&path)?);
    }
    tree.file("init".to_owned(), 0o755, read(&parts.checks.join("init"))?);
    tree.file("etc/passwd".to_owned(), 0o644, PASSWD.into());
    let mut names = Vec::new();
    let folder = parts.checks.join("checks");
    for entry in std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        tree.file(format!("opt/checks/{name}"), 0o755, read(&entry.path())?);
        names.push(name);
    }
    names.sort();
    // Where the kernel's own messages and the first words of `init` go.
    tree.entries.insert("dev/console".to_owned(), Entry { kind: 0o020_600, data: Vec::new(), device: (5, 1) });
    let mut archive = Vec::new();
    tree.print(&mut archive);
    let write = std::fs::File::create(to).and_then(|mut file| file.write_all(&archive));
    write.map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Where Python's library is.
fn python() -> Result<String, String> {
    let said = output(Command::new("/usr/bin/python3").args(["-c", "import os; print(os.path.dirname(os.__file__))"]))?;
    Ok(said.trim().to_owned())
}

struct Entry {
    /// Type and permissions.
    kind: u32,
    data: Vec<u8>,
    device: (u32, u32),
}

#[derive(Default)]
struct Tree {
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    fn file(&mut self, name: String, permissions: u32, data: Vec<u8>) {
        self.entries.insert(name, Entry { kind: 0o100_000 | permissions, data, device: (0, 0) });
    }

    fn link(&mut self, name: &str, target: &str) {
        self.entries.insert(name.to_owned(), Entry { kind: 0o120_777, data: target.into(), device: (0, 0) });
    }

    /// A program without what only a debugger reads, and the libraries that it is linked with.
    fn program(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let stripped = output(Command::new("mktemp").arg("--tmpdir"))?;
        let stripped = stripped.trim();
        let made =
            output(Command::new("strip").args(["-o", stripped]).arg(path)).and_then(|_| read(Path::new(stripped)));
        // It lies in the system's temporary directory if it cannot be removed.
        let _ = std::fs::remove_file(stripped);
        self.file(name.to_owned(), 0o755, made?);
        for library in libraries(path) {
            let data = read(Path::new(&library))?;
            self.file(library.trim_start_matches('/').to_owned(), 0o755, data);
        }
        Ok(())
    }

    /// The files of a folder at the same place, and what its programs are linked with.
    fn folder(&mut self, path: &Path) -> Result<(), String> {
        let fail = |error| format!("{}: {error}", path.display());
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let (name, path) = (entry.file_name(), entry.path());
            if NOT_OF_PYTHON.iter().any(|other| name == *other) {
                continue;
            }
            if path.is_dir() {
                self.folder(&path)?;
                continue;
            }
            let inside = path.display().to_string();
            if path.extension().is_some_and(|end| end == "so") {
                self.program(inside.trim_start_matches('/'), &path)?;
            } else if path.extension().is_some_and(|end| end == "py") {
                self.file(inside.trim_start_matches('/').to_owned(), 0o644, read(&path)?);
            }
        }
        Ok(())
    }

    fn print(&self, archive: &mut Vec<u8>) {
        let mut folders = BTreeSet::new();
        for name in self.entries.keys() {
            folders.extend(Path::new(name).ancestors().skip(1).map(|folder| folder.display().to_string()));
        }
        let mut number = 0;
        for folder in folders.iter().filter(|folder| !folder.is_empty()) {
            number += 1;
            print_entry(archive, number, folder, &Entry { kind: 0o040_755, data: Vec::new(), device: (0, 0) });
        }
        for (name, entry) in &self.entries {
            number += 1;
            print_entry(archive, number, name, entry);
        }
        print_entry(archive, 0, "TRAILER!!!", &Entry { kind: 0, data: Vec::new(), device: (0, 0) });
    }
}

/// The absolute paths that the loader would use; none for a static program, of which ldd(1) says so by its status.
fn libraries(program: &Path) -> Vec<String> {
    let said = output(Command::new("ldd").arg(program)).unwrap_or_default();
    said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

/// One entry: thirteen numbers of eight hexadecimal digits behind the magic, the name, the data, each padded to four bytes.
fn print_entry(archive: &mut Vec<u8>, number: u32, name: &str, entry: &Entry) {
    let length = u32::try_from(entry.data.len()).unwrap_or(u32::MAX);
    let name_length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
    let (major, minor) = entry.device;
    archive.extend_from_slice(b"070701");
    // Inode, mode, owner, group, links, time, size, device of the file, device that it is, length of the name, checksum.
    for field in [number, entry.kind, 0, 0, 1, 0, length, 0, 0, major, minor, name_length, 0] {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(&entry.data);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_what_cpio_reads() {
        let mut tree = Tree::default();
        tree.file("a/b/file".to_owned(), 0o640, b"hello".to_vec());
        tree.link("a/link", "b/file");
        let mut archive = Vec::new();
        tree.print(&mut archive);
        assert_eq!(archive.len() % 4, 0);
        let text = String::from_utf8_lossy(&archive);
        // Folders come before what is in them.
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("a") < at("a/b") && at("a/b") < at("a/b/file") && at("a/link") < at("TRAILER!!!"));
        let header = &text[at("a/b/file") - 110..at("a/b/file")];
        assert!(
            header.starts_with("070701") && &header[14..22] == "000081a0" && &header[54..62] == "00000005",
            "{header}"
        );
        assert!(text.contains("\0hello\0") && text.contains("b/file"));
    }
}
