//! Verdicts of probes that outlive the process that probed, for programs that run one command and exit.
//!
//! A probe costs several times what raising the walls costs. What it finds depends on the kernel, on this process's
//! place in it, and on a few programs and settings; all of that is written down beside the verdict, and a verdict counts
//! only while every line of it is the same, and for an hour at most. The files lie in the runtime directory, which no
//! confined command can write. A wall that has gone since is still missed: the launcher refuses to run without it, and the
//! verdict is then removed.

use crate::backend::Backend;
use crate::chain::Usable;
use crate::linux_bwrap::plan::LADDER;
use crate::plan::Proof;
use pinfold_policy::ConfinedMode;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a verdict counts.
const LIFE: Duration = Duration::from_secs(60 * 60);

/// A longer file is none of ours.
const MAX_BYTES: u64 = 64 << 10;

/// Where verdicts are kept.
#[derive(Debug)]
pub(crate) struct VerdictFiles {
    directory: PathBuf,
}

impl VerdictFiles {
    /// Keeps verdicts below a runtime directory.
    pub(crate) fn below(runtime: &Path) -> io::Result<Self> {
        let directory = crate::runtime_dir::private_part(runtime, "verdicts").map_err(io::Error::other)?;
        Ok(Self { directory })
    }

    fn path(&self, backend: Backend, mode: ConfinedMode) -> PathBuf {
        self.directory.join(format!("{}.{mode}", backend.provider_name()))
    }

    /// Returns the verdict of an earlier process that still counts here and now.
    pub(crate) fn load(&self, backend: Backend, mode: ConfinedMode, programs: &[&Path]) -> Option<Usable> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(self.path(backend, mode))
            .ok()?;
        let metadata = file.metadata().ok()?;
        let ours = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
        if !ours || !metadata.is_file() || age > LIFE || metadata.len() > MAX_BYTES {
            return None;
        }
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        parse(text.strip_prefix(&circumstances(programs)?)?)
    }

    /// Keeps a verdict. Where that is not possible the next process probes again, so errors change nothing.
    pub(crate) fn store(&self, backend: Backend, mode: ConfinedMode, programs: &[&Path], usable: &Usable) {
        let (Some(mut text), Some(verdict)) = (circumstances(programs), render(usable)) else { return };
        text.push_str(&verdict);
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(text.as_bytes())?;
            file.persist(self.path(backend, mode)).map_err(|error| error.error)
        };
        let _ = write();
    }

    /// Removes what is kept of a mechanism, because it failed a call.
    pub(crate) fn forget(&self, backend: Backend) {
        for mode in ConfinedMode::ALL {
            let _ = fs::remove_file(self.path(backend, *mode));
        }
    }
}

/// Everything that a verdict depends on, as text; nothing if part of it cannot be found out.
fn circumstances(programs: &[&Path]) -> Option<String> {
    let mut text = format!("pinfold {} verdict\n", env!("CARGO_PKG_VERSION"));
    for path in ["/proc/sys/kernel/random/boot_id", "/proc/version"] {
        writeln!(text, "{path} {}", fs::read_to_string(path).ok()?.trim()).ok()?;
    }
    // Settings that an administrator changes while the machine runs; a missing one says so.
    for name in
        ["user/max_user_namespaces", "kernel/unprivileged_userns_clone", "kernel/apparmor_restrict_unprivileged_userns"]
    {
        let value = fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
        writeln!(text, "{name} {}", value.trim()).ok()?;
    }
    for name in ["user", "mnt", "pid", "ipc", "uts"] {
        writeln!(text, "{}", fs::read_link(format!("/proc/self/ns/{name}")).ok()?.display()).ok()?;
    }
    writeln!(text, "root {}", fs::read_link("/proc/self/root").ok()?.display()).ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kept =
        ["Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp"];
    for line in status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))) {
        writeln!(text, "{line}").ok()?;
    }
    let label = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
    writeln!(text, "label {}", label.trim_end_matches(['\0', '\n'])).ok()?;
    for program in programs {
        let it = fs::metadata(program).ok()?;
        let (changed, modified) = ((it.ctime(), it.ctime_nsec()), (it.mtime(), it.mtime_nsec()));
        writeln!(text, "{program:?} {} {} {} {changed:?} {modified:?}", it.dev(), it.ino(), it.size()).ok()?;
    }
    Some(text)
}

fn render(usable: &Usable) -> Option<String> {
    let Proof { content, metadata, links, inherited, process_root, protected, governed } = usable.proof;
    let rung = LADDER.iter().position(|features| *features == usable.features)?;
    // A path with a line end would not come back as it was.
    let program = usable.program.to_str().filter(|program| !program.contains('\n'))?;
    let proof = [content, metadata, links, inherited, process_root, protected, governed]
        .map(|shown| if shown { '1' } else { '0' });
    Some(format!("= {} {} {rung} {program}\n", usable.landlock_abi, String::from_iter(proof)))
}

fn parse(text: &str) -> Option<Usable> {
    let mut words = text.strip_prefix("= ")?.strip_suffix('\n')?.splitn(4, ' ');
    let landlock_abi = words.next()?.parse().ok()?;
    let shown: Vec<bool> = words.next()?.chars().map(|digit| digit == '1').collect();
    let &[content, metadata, links, inherited, process_root, protected, governed] = shown.as_slice() else {
        return None;
    };
    let features = *LADDER.get(words.next()?.parse::<usize>().ok()?)?;
    let program = PathBuf::from(words.next()?);
    let proof = Proof { content, metadata, links, inherited, process_root, protected, governed };
    Some(Usable { landlock_abi, proof, features, program })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::ConfinedMode::{ReadOnly, WorkspaceWrite};
    use std::os::unix::fs::PermissionsExt as _;

    fn usable() -> Usable {
        let proof = Proof { content: true, links: true, inherited: true, governed: true, ..Proof::default() };
        Usable { landlock_abi: 7, proof, features: LADDER[2], program: "/a b/pinfold-run".into() }
    }

    fn files() -> (tempfile::TempDir, VerdictFiles) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let files = VerdictFiles::below(directory.path()).unwrap();
        (directory, files)
    }

    #[test]
    fn a_verdict_comes_back_for_its_backend_and_mode_only() {
        let (_directory, files) = files();
        let program = std::env::current_exe().unwrap();
        files.store(Backend::Bwrap, WorkspaceWrite, &[&program], &usable());
        assert_eq!(files.load(Backend::Bwrap, WorkspaceWrite, &[&program]), Some(usable()));
        assert_eq!(files.load(Backend::Bwrap, ReadOnly, &[&program]), None);
        assert_eq!(files.load(Backend::Namespace, WorkspaceWrite, &[&program]), None);
        files.forget(Backend::Bwrap);
        assert_eq!(files.load(Backend::Bwrap, WorkspaceWrite, &[&program]), None);
    }

    #[test]
    fn a_changed_program_needs_a_new_probe() {
        let (directory, files) = files();
        let program = directory.path().join("program");
        fs::write(&program, "one").unwrap();
        files.store(Backend::Namespace, ReadOnly, &[&program], &usable());
        assert!(files.load(Backend::Namespace, ReadOnly, &[&program]).is_some());
        fs::write(&program, "other").unwrap();
        assert_eq!(files.load(Backend::Namespace, ReadOnly, &[&program]), None);
    }

    #[test]
    fn an_old_foreign_or_malformed_verdict_does_not_count() {
        let (_directory, files) = files();
        let path = files.path(Backend::Namespace, ReadOnly);
        let load = || files.load(Backend::Namespace, ReadOnly, &[]);
        files.store(Backend::Namespace, ReadOnly, &[], &usable());
        assert!(load().is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(load(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let file = fs::File::open(&path).unwrap();
        for wrong in [SystemTime::now() - LIFE * 2, SystemTime::now() + LIFE] {
            file.set_modified(wrong).unwrap();
            assert_eq!(load(), None);
        }
        let good = circumstances(&[]).unwrap();
        for tail in
            ["", "= 7 1111111 0", "= x 1111111 0 /p\n", "= 7 11111 0 /p\n", "= 7 1111111 9 /p\n", "7 1111111 0 /p\n"]
        {
            fs::write(&path, format!("{good}{tail}")).unwrap();
            assert_eq!(load(), None, "{tail:?}");
        }
        fs::write(&path, format!("{good}= 7 1111111 0 /p\n")).unwrap();
        assert!(load().is_some());
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let (directory, files) = files();
        files.store(Backend::Namespace, ReadOnly, &[], &usable());
        let path = files.path(Backend::Namespace, ReadOnly);
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(files.load(Backend::Namespace, ReadOnly, &[]), None);
    }
}
