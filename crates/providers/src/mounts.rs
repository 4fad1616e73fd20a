//! Mounts below a writable root. They become writable with it, so they are looked for: kernel file systems are
//! refused, because nothing in them is a file of the workspace; any other mount is reported, because what it shows
//! may have another name outside.

use crate::roots::PinnedRoot;
use pinfold_policy::quote::quote;
use pinfold_policy::{Guarantee, GuaranteeReport, RootProblem, RootRole, SandboxError, Strength};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// How many mounts a report names.
const NAMED: usize = 5;

/// File systems through which the kernel itself is set up or shown.
const KERNEL: [&str; 31] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "cpuset",
    "devtmpfs",
    "devpts",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "apparmorfs",
    "configfs",
    "pstore",
    "efivarfs",
    "bpf",
    "binfmt_misc",
    "fusectl",
    "mqueue",
    "nsfs",
    "hugetlbfs",
    "resctrl",
    "rpc_pipefs",
    "nfsd",
    "functionfs",
    "gadgetfs",
    "ibmasmfs",
    "xenfs",
    "openpromfs",
    "dax",
];

/// One line of the table, as far as it counts here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    /// Which file system it is, `major:minor`.
    pub(crate) device: Vec<u8>,
    /// Which directory of the file system it shows.
    pub(crate) inner: PathBuf,
    kind: Vec<u8>,
    shared: bool,
}

/// What was found for the roots of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Mounts below a root, the first few.
    below: Vec<PathBuf>,
    /// How many there are in all.
    total: usize,
    /// Mounts that we cannot examine, because a directory above them is closed to us.
    beyond: Vec<PathBuf>,
    /// Whether mounts that the host makes later reach mount trees that follow it.
    shared: bool,
    /// The table could not be read.
    unknown: bool,
}

impl Mounts {
    /// Looks at the mounts of this process below its writable roots.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` if one of them belongs to the kernel.
    pub(crate) fn look(roots: &[PinnedRoot], workspace: &Path) -> Result<Self, SandboxError> {
        if roots.is_empty() {
            return Ok(Self::default());
        }
        let mut table = Vec::with_capacity(64 << 10);
        match File::open("/proc/self/mountinfo").and_then(|mut file| file.read_to_end(&mut table)) {
            Ok(_) => {
                let table = parse(&table);
                let closed = |point: &Path| {
                    let looked = std::fs::symlink_metadata(point);
                    looked.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
                };
                let beyond = table.iter().map(|mount| mount.point.as_path()).filter(|point| closed(point));
                let beyond = beyond.map(Path::to_owned).collect();
                Ok(Self { beyond, ..Self::judge(&table, roots, workspace)? })
            }
            Err(_) => Ok(Self { unknown: true, ..Self::default() }),
        }
    }

    fn judge(table: &[Mount], roots: &[PinnedRoot], workspace: &Path) -> Result<Self, SandboxError> {
        let mut found = Self { shared: table.iter().any(|mount| mount.shared), ..Self::default() };
        let mut below: Vec<&Path> = Vec::new();
        for mount in table {
            let Some(root) = roots.iter().rev().find(|root| mount.point.starts_with(&root.path)) else { continue };
            if KERNEL.iter().any(|kind| kind.as_bytes() == mount.kind) {
                let role = if root.path == workspace { RootRole::Workspace } else { RootRole::Additional };
                let problem = RootProblem::Refused(format!(
                    "a kernel file system ({}) is mounted at {} and would become writable with it; unmount it, or choose \
                     a narrower directory",
                    String::from_utf8_lossy(&mount.kind),
                    quote(&mount.point)
                ));
                return Err(SandboxError::InvalidRoot { role, path: root.path.clone(), problem });
            }
            // A mount that is itself a root was asked for by name.
            if mount.point != root.path {
                below.push(&mount.point);
            }
        }
        below.sort();
        below.dedup();
        found.total = below.len();
        found.below = below.into_iter().take(NAMED).map(Path::to_owned).collect();
        Ok(found)
    }

    /// What a report says of mounts that bubblewrap cannot reach.
    ///
    /// QUIRK: it makes mount points read-only by their paths, and leaves out those that it may not look up. If somebody opens
    /// the directory above while the command runs, such a mount is as the host has it.
    pub(crate) fn beyond_bubblewrap(&self) -> Option<GuaranteeReport> {
        if self.beyond.is_empty() {
            return None;
        }
        let named = self.beyond.iter().take(NAMED).map(quote).collect::<Vec<_>>().join(", ");
        let more = if self.beyond.len() > NAMED { " and more" } else { "" };
        let note = format!(
            "Mounts below directories that this user cannot enter stay writable for their metadata, should somebody open \
             these directories while the command runs: {named}{more}."
        );
        Some(GuaranteeReport::new(Guarantee::WriteMetadata, Strength::Partial, &[], false).with_note(note))
    }

    /// What a report says of them; `follows` says that later mounts of the host reach the command's mount tree.
    pub(crate) fn state(&self, follows: bool) -> Vec<GuaranteeReport> {
        const WRITES: [Guarantee; 3] = [Guarantee::WriteContent, Guarantee::WriteMetadata, Guarantee::WriteViaLinks];
        let partial =
            |guarantee, note: &str| GuaranteeReport::new(guarantee, Strength::Partial, &[], false).with_note(note);
        let mut lines = Vec::new();
        if self.unknown {
            let note = "The table of mounts could not be read: what is mounted below a writable root is writable.";
            lines.extend(WRITES.map(|guarantee| partial(guarantee, note)));
        }
        if self.total > 0 {
            let mut note = self.below.iter().map(quote).collect::<Vec<_>>().join(", ");
            if self.total > self.below.len() {
                note.push_str(&format!(" and {} more", self.total - self.below.len()));
            }
            let note = format!("Mounted below a writable root, and writable whatever it shows: {note}.");
            lines.extend(WRITES.map(|guarantee| partial(guarantee, &note)));
        }
        if follows && (self.shared || self.unknown) {
            let note = "The host shares its mounts: what it mounts while the command runs arrives inside, where modes, \
                        owners and times can be changed.";
            lines.push(partial(Guarantee::WriteMetadata, note));
        }
        lines
    }
}

/// Reads the table; a line that makes no sense is left out.
pub(crate) fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// `id parent major:minor root point options [tag…] - kind source options`, see proc_pid_mountinfo(5).
fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?.to_vec();
    let inner = OsString::from_vec(unescape(fields.next()?)).into();
    let point = unescape(fields.next()?);
    let _options = fields.next()?;
    let mut shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            tag => shared |= tag.starts_with(b"shared:"),
        }
    }
    let kind = unescape(fields.next()?);
    point.starts_with(b"/").then(|| Mount { point: OsString::from_vec(point).into(), device, inner, kind, shared })
}

/// Space, tab, newline, backslash and `#` stand there as octal numbers.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match value {
            Some(value) => {
                plain.push(value);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 8:1 /../x /w/up rw master:4 propagate_from:2 unbindable - ext4 /dev/sda1 rw
31 22 0:4 net:[4026531840] /run/netns/a rw shared:7 master:1 - nsfs nsfs rw
32 22 0:40 / /w/a\\040b\\134c\\012 rw - tmpfs tmpfs rw,a=- - b
33 22 0:41 :[4026531840] /w2/ns rw - nsfs nsfs rw

34 22 short
35 22 0:1 / relative rw - tmpfs x rw
36 22 0:1 / /w/\\9\\77 rw - fuse.x-y
37 22 0:1 / /w rw - tmpfs x rw
38 22 0:1 / /wide rw - proc proc rw
39 22 0:1 / /no-end rw shared:1";

    fn roots(paths: &[&str]) -> Vec<PinnedRoot> {
        paths.iter().map(|path| PinnedRoot { path: path.into(), device: 1, inode: 1 }).collect()
    }

    #[test]
    // Case B113.
    fn strange_lines_are_read_or_left_out() {
        let table = parse(TABLE.as_bytes());
        let points: Vec<_> = table.iter().map(|mount| mount.point.to_str().unwrap()).collect();
        let expected = ["/", "/w/up", "/run/netns/a", "/w/a b\\c\n", "/w2/ns", "/w/\\9\\77", "/w", "/wide"];
        assert_eq!(points, expected);
        assert_eq!(table.iter().filter(|mount| mount.shared).count(), 2);
        assert_eq!((table[3].kind.as_slice(), table[5].kind.as_slice()), (&b"tmpfs"[..], &b"fuse.x-y"[..]));
        assert!(parse(b"").is_empty() && parse(b"\xff \n - - -\n").is_empty());
    }

    #[test]
    fn mounts_below_a_root_are_reported_and_those_of_the_kernel_refused() {
        let table = parse(TABLE.as_bytes());
        let found = Mounts::judge(&table, &roots(&["/w"]), Path::new("/w")).unwrap();
        assert_eq!(found.total, 3);
        let lines = found.state(false);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.strength == Strength::Partial && line.notes[0].contains("/w/up")));
        assert_eq!(found.state(true).len(), 4);
        // A mount that is a root of its own was asked for.
        assert_eq!(Mounts::judge(&table, &roots(&["/w", "/w/up"]), Path::new("/w")).unwrap().total, 2);
        for root in ["/w2", "/wide"] {
            let error = Mounts::judge(&table, &roots(&[root]), Path::new("/w")).unwrap_err().to_string();
            assert!(error.contains("kernel file system") && error.contains("narrower"), "{error}");
        }
        assert_eq!(Mounts::judge(&table, &roots(&["/other"]), Path::new("/w")).unwrap().total, 0);
    }
}
