//! What every probe does: it lays out directories, runs the launcher's canary under exactly the plan that a call would
//! get, and looks at the disk. A program's exit status or words prove nothing here.

use crate::call::Stream;
use crate::cancel::Cancel;
use crate::plan::Proof;
use crate::roots::{PinnedRoot, pin_physical};
use crate::run::{Ended, Family, Start};
use crate::status::Status;
use pinfold_policy::ConfinedMode;
use pinfold_policy::quote::quote;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mode of the file whose mode the canary tries to change.
const META_MODE: u32 = 0o600;

/// Directories of one probe; removed when dropped.
#[derive(Debug)]
pub(crate) struct Canary {
    _directory: tempfile::TempDir,
    pub(crate) granted: PinnedRoot,
    outside: PathBuf,
    outside_by_link: PathBuf,
    outside_by_descriptor: PathBuf,
    outside_by_process: PathBuf,
}

/// One attempt: the two arguments of the canary, and what it must inherit.
pub(crate) struct Act {
    pub(crate) arguments: [OsString; 2],
    pub(crate) passed: Vec<OwnedFd>,
}

impl Canary {
    /// Lays the directories out, and shows by doing it that writing into each is possible without a sandbox.
    pub(crate) fn lay_out(directory: tempfile::TempDir) -> io::Result<Self> {
        let base = directory.path().canonicalize()?;
        let make = |name: &str| {
            let path = base.join(name);
            DirBuilder::new().mode(0o700).create(&path)?;
            fs::write(path.join("control"), "")?;
            fs::remove_file(path.join("control"))?;
            if name != "granted" {
                fs::write(path.join("meta"), "")?;
                fs::set_permissions(path.join("meta"), Permissions::from_mode(META_MODE))?;
            }
            io::Result::Ok(path)
        };
        let granted = make("granted")?;
        let outside_by_link = make("by-link")?;
        std::os::unix::fs::symlink(&outside_by_link, granted.join("through"))?;
        Ok(Self {
            granted: pin_physical(&granted).map_err(|problem| io::Error::other(problem.to_string()))?,
            outside: make("outside")?,
            outside_by_link,
            outside_by_descriptor: make("by-descriptor")?,
            outside_by_process: make("by-process")?,
            _directory: directory,
        })
    }

    /// The first attempt: by name, which every mechanism must refuse.
    pub(crate) fn by_name(&self) -> Act {
        Act { arguments: [self.granted.path.clone().into(), self.outside.clone().into()], passed: Vec::new() }
    }

    /// The other attempts: through a link and an open directory, then through our own root directory.
    pub(crate) fn around(&self) -> io::Result<[Act; 2]> {
        let open = crate::run::passable(&fs::File::open(&self.outside_by_descriptor)?)?;
        let descriptor = format!("/proc/self/fd/{}", crate::run::number(&open));
        let mut root: OsString = format!("/proc/{}/root", std::process::id()).into();
        root.push(&self.outside_by_process);
        let first =
            Act { arguments: [self.granted.path.join("through").into(), descriptor.into()], passed: vec![open] };
        let second = Act { arguments: [root, self.outside.clone().into()], passed: Vec::new() };
        Ok([first, second])
    }

    /// Removes what an earlier attempt made in the granted directory.
    pub(crate) fn clear_granted(&self) -> io::Result<()> {
        for name in ["granted", "descendant"] {
            match fs::remove_file(self.granted.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether what had to be possible was, and what had not to be was not; by name only.
    pub(crate) fn judge_by_name(&self, mode: ConfinedMode, ended: &Ended) -> Result<(), String> {
        let made = |name: &str| fs::symlink_metadata(self.granted.path.join(name)).is_ok();
        if !untouched(&self.outside)? {
            return Err("a command could write outside its writable places".to_owned());
        }
        match mode {
            ConfinedMode::ReadOnly if made("granted") || made("descendant") => {
                return Err("a command could write although nothing is writable in this mode".to_owned());
            }
            ConfinedMode::WorkspaceWrite if !made("granted") || !made("descendant") => {
                return Err(format!("a command could not write in its workspace{}", said(ended)));
            }
            _ => {}
        }
        if ended.exit.success() { Ok(()) } else { Err(format!("the canary failed ({}){}", ended.exit, said(ended))) }
    }

    /// Reads from the disk what was refused, after all attempts.
    pub(crate) fn proof(&self) -> Result<Proof, String> {
        Ok(Proof {
            content: untouched(&self.outside)?,
            metadata: meta_unchanged(&self.outside)?,
            links: untouched(&self.outside_by_link)?,
            inherited: untouched(&self.outside_by_descriptor)? && meta_unchanged(&self.outside_by_descriptor)?,
            process_root: untouched(&self.outside_by_process)?,
            ..Proof::default()
        })
    }

    /// Makes a directory with a file inside the granted one, to be protected there.
    pub(crate) fn lay_out_kept(&self) -> io::Result<PathBuf> {
        let kept = self.granted.path.join("kept");
        DirBuilder::new().mode(0o700).create(&kept)?;
        for directory in [&kept, &self.outside] {
            fs::write(directory.join("meta"), "")?;
            fs::set_permissions(directory.join("meta"), Permissions::from_mode(META_MODE))?;
        }
        Ok(kept)
    }

    /// An attempt at what is protected in the granted directory.
    pub(crate) fn by_protected_name(&self) -> Act {
        let granted = self.granted.path.clone();
        Act { arguments: [granted.clone().into(), granted.join("kept").into()], passed: Vec::new() }
    }

    /// Whether everything that is to be possible in the granted directory was.
    pub(crate) fn judge_granted(&self, ended: &Ended) -> bool {
        let made = |name: &str| fs::symlink_metadata(self.granted.path.join(name)).is_ok();
        made("granted") && made("descendant") && ended.exit.success()
    }

    pub(crate) fn kept_is_untouched(&self) -> Result<bool, String> {
        let kept = self.granted.path.join("kept");
        Ok(untouched(&kept)? && meta_unchanged(&kept)?)
    }

    pub(crate) fn outside_is_untouched(&self) -> Result<bool, String> {
        Ok(untouched(&self.outside)? && meta_unchanged(&self.outside)?)
    }
}

fn untouched(directory: &Path) -> Result<bool, String> {
    let failed = |error: io::Error| format!("cannot list {}: {error}", quote(directory));
    for entry in fs::read_dir(directory).map_err(failed)? {
        if entry.map_err(failed)?.file_name() != "meta" {
            return Ok(false);
        }
    }
    Ok(true)
}

fn meta_unchanged(directory: &Path) -> Result<bool, String> {
    let path = directory.join("meta");
    let metadata = fs::symlink_metadata(&path).map_err(|error| format!("cannot examine {}: {error}", quote(&path)))?;
    Ok(metadata.permissions().mode() & 0o7777 == META_MODE)
}

/// What a program said, as a subordinate clause.
pub(crate) fn said(ended: &Ended) -> String {
    let text = String::from_utf8_lossy(&ended.stderr.bytes);
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => format!("; it said {}", quote(line)),
        None => String::new(),
    }
}

/// Runs one program of a probe to its end.
pub(crate) fn attempt(
    argv: &[OsString],
    environment: &[(OsString, OsString)],
    passed: Vec<OwnedFd>,
    status: Option<OwnedFd>,
    deadline: Instant,
) -> io::Result<(Ended, Status)> {
    let ended = crate::run::run(Start {
        argv,
        environment,
        // It exists in every mount tree.
        cwd: Some("/".into()),
        streams: [Stream::Null, Stream::Null, Stream::Capture { limit: 4096 }],
        given: [None; 3],
        observe: None,
        passed,
        status,
        family: Family::Supervised,
        deadline: Some(deadline),
        grace: Duration::from_millis(100),
        cancel: &Cancel::new(),
        on_spawn: None,
        hold: None,
        refusals: None,
        resident: None,
        ahead: None,
    })?;
    let status = Status::parse(&ended.status);
    Ok((ended, status))
}
