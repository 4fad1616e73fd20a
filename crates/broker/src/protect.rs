//! Asks the policy about a place, and notes what it forbids.

use crate::caller::{Caller, Outcome, Refusal};
use crate::denials::Denial;
use crate::resolve::{Name, Object};
use pinfold_policy::{Effect, ProtectionRule};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// An effect that is forbidden, and where it would happen: enough to recognise it when it is tried again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) denial: Denial,
    /// The directory, what is there now, and what would come to be there or be moved.
    pub(crate) pins: Option<Pins>,
}

/// What an answer is bound to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    effect: Option<Effect>,
    parent: Option<Pin>,
    object: Option<Pin>,
    /// The other name of the call, or the target of a link.
    pub(crate) other: Option<PathBuf>,
    /// What no path tells: where a link leads that is moved, or what metadata would become.
    pub(crate) detail: Option<Vec<u8>>,
    other_object: Option<Pin>,
}

impl Pins {
    fn of_object(object: &Object, detail: Option<Vec<u8>>) -> Outcome<Self> {
        Ok(Self { object: Some(Pin::of(&object.handle)?), detail, ..Self::default() })
    }
}

/// A file that is held open, so that no other one gets its number meanwhile.
#[derive(Debug)]
struct Pin {
    _held: OwnedFd,
    identity: (u64, u64),
}

impl PartialEq for Pin {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for Pin {}

impl Pin {
    fn of(handle: impl AsFd) -> Outcome<Self> {
        let held = handle.as_fd().try_clone_to_owned().map_err(|_| Errno::NFILE)?;
        let stat = fstat(&held)?;
        Ok(Self { identity: (stat.st_dev, stat.st_ino), _held: held })
    }

    fn at(name: &Name) -> Outcome<Option<Self>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&name.parent, &*name.name, flags, Mode::empty()) {
            Ok(handle) => Self::of(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The other side of a call with two names.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Other<'a> {
    pub(crate) path: Option<&'a Path>,
    pub(crate) object: Option<&'a Object>,
}

impl Caller<'_> {
    /// The path of what a handle holds, as the kernel knows it now.
    pub(crate) fn path_of(&self, handle: impl AsFd) -> Outcome<PathBuf> {
        let number = handle.as_fd().as_raw_fd().to_string();
        let path = readlinkat(&self.server.own_descriptors, number, Vec::new())?.into_bytes();
        Ok(PathBuf::from(OsString::from_vec(path)))
    }

    /// The path of a name, or none for `.` and `..`, at which the kernel makes, moves and removes nothing.
    pub(crate) fn path_of_name(&self, name: &Name) -> Outcome<Option<PathBuf>> {
        if name.name == b"." || name.name == b".." {
            return Ok(None);
        }
        let parent = self.path_of(&name.parent)?;
        if !parent.is_absolute() {
            return Err(Errno::ACCESS.into());
        }
        Ok(Some(parent.join(std::ffi::OsStr::from_bytes(&name.name))))
    }

    /// Refuses an effect that the policy forbids at this name.
    pub(crate) fn permit(&self, operation: &'static str, name: &Name, effect: Effect) -> Outcome<()> {
        self.permit_beside(operation, name, effect, Other::default())
    }

    /// The same for a call with two names.
    pub(crate) fn permit_beside(
        &self,
        operation: &'static str,
        name: &Name,
        effect: Effect,
        other: Other<'_>,
    ) -> Outcome<()> {
        match self.path_of_name(name)? {
            Some(path) => {
                self.in_reach(operation, &path, &name.parent)?;
                self.permit_path(operation, name, &path, effect, other)
            }
            None => Ok(()),
        }
    }

    /// The same for what is not changed by its name.
    pub(crate) fn permit_place(&self, operation: &'static str, name: &Name, effect: Effect) -> Outcome<()> {
        let path = self.path_of_name(name)?;
        path.map_or(Ok(()), |path| self.permit_path(operation, name, &path, effect, Other::default()))
    }

    /// Where no mount tree stands, names are changed in the writable places alone, by *these* names.
    ///
    /// SECURITY: Landlock knows directories, not paths: a root that was moved, or has another name through another mount,
    /// stays writable for it, and the policy would not know the names in it.
    pub(crate) fn in_reach(&self, operation: &'static str, path: &Path, parent: impl AsFd) -> Outcome<()> {
        let writable = &self.server.writable;
        if !self.server.governs_metadata || writable.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        // The kernel says it better.
        if is_read_only(parent)? { Ok(()) } else { Err(self.out_of_reach(operation, path)) }
    }

    /// The same for a name whose path is known.
    pub(crate) fn permit_path(
        &self,
        operation: &'static str,
        name: &Name,
        path: &Path,
        effect: Effect,
        other: Other<'_>,
    ) -> Outcome<()> {
        self.about_to(operation, path, &name.parent);
        let Some(rule) = self.rule_on(path, effect) else { return Ok(()) };
        self.forbid(operation, path, Some(rule), || {
            let link = other.object.filter(|object| object.kind() == FileType::Symlink);
            let target = link.map(|link| readlinkat(&link.handle, "", Vec::new())).transpose()?;
            Ok(Pins {
                effect: Some(effect),
                parent: Some(Pin::of(&name.parent)?),
                object: Pin::at(name)?,
                other: other.path.map(Path::to_owned),
                detail: target.map(|target| [b"a link to ", target.as_bytes()].concat()),
                other_object: other.object.map(|object| Pin::of(&object.handle)).transpose()?,
            })
        })
    }

    fn rule_on(&self, path: &Path, effect: Effect) -> Option<ProtectionRule> {
        self.server.protected.rule_on(path, effect, &|path: &Path| self.exists(path))
    }

    /// Refuses to change protected content behind a handle.
    pub(crate) fn permit_content(&self, operation: &'static str, object: &Object) -> Outcome<()> {
        let path = self.path_of(&object.handle)?;
        if path.is_absolute() {
            self.about_to(operation, &path, &object.handle);
        }
        if path.is_absolute() && !object.is_device() && object.stat.st_nlink > 0 {
            self.in_reach(operation, &path, &object.handle)?;
        }
        self.permit_object(operation, object, &path, || None)
    }

    /// Refuses to change metadata behind a handle: what is protected, or, where no mount tree stands, what lies outside of what
    /// may be written. `wanted` says what it would become.
    pub(crate) fn permit_metadata(
        &self,
        operation: &'static str,
        object: &Object,
        wanted: impl Fn() -> String,
    ) -> Outcome<()> {
        let path = self.path_of(&object.handle)?;
        let detail = || Some(wanted().into_bytes());
        if self.server.governs_metadata && !self.is_writable(&path, object) {
            self.forbid(operation, &path, None, || Pins::of_object(object, detail()))?;
        }
        if path.is_absolute() {
            self.about_to(operation, &path, &object.handle);
        }
        self.permit_object(operation, object, &path, detail)
    }

    fn permit_object(
        &self,
        operation: &'static str,
        object: &Object,
        path: &Path,
        detail: impl Fn() -> Option<Vec<u8>>,
    ) -> Outcome<()> {
        // What has no path has no name that could be protected.
        match Some(path).filter(|path| path.is_absolute()).and_then(|path| self.rule_on(path, Effect::Alter)) {
            Some(rule) => self.forbid(operation, path, Some(rule), || Pins::of_object(object, detail())),
            None => Ok(()),
        }
    }

    /// Refuses an effect, unless a person has permitted exactly this one to this call.
    fn forbid(
        &self,
        operation: &'static str,
        path: &Path,
        rule: Option<ProtectionRule>,
        pins: impl FnOnce() -> Outcome<Pins>,
    ) -> Outcome<()> {
        let denial = Denial::ours(operation, path.to_owned(), rule);
        let askable = self.server.asks.as_ref().is_some_and(|asks| asks.may_ask(&denial));
        let refused = Refused { denial, pins: if askable { Some(pins()?) } else { None } };
        if askable && self.is_permitted(&refused) { Ok(()) } else { Err(Refusal::Denied(Box::new(refused))) }
    }

    fn is_writable(&self, path: &Path, object: &Object) -> bool {
        let mut place = path;
        let stripped;
        if object.stat.st_nlink == 0 {
            let bytes = path.as_os_str().as_bytes();
            let Some(before) = bytes.strip_suffix(b" (deleted)") else { return false };
            // Memory of its own, which has no name anywhere.
            if before.starts_with(b"/memfd:") {
                return true;
            }
            stripped = PathBuf::from(std::ffi::OsStr::from_bytes(before));
            place = &stripped;
        }
        self.server.writable.iter().any(|root| place.starts_with(root))
    }

    /// A refusal about which nobody is asked.
    pub(crate) fn deny(&self, operation: &'static str, path: &Path, rule: Option<ProtectionRule>) -> Refusal {
        self.deny_as(Denial::ours(operation, path.to_owned(), rule))
    }

    pub(crate) fn deny_as(&self, denial: Denial) -> Refusal {
        Refusal::Denied(Box::new(Refused { denial, pins: None }))
    }
}

/// Whether what a handle holds lies on a mount that is read-only.
pub(crate) fn is_read_only(handle: impl AsFd) -> Outcome<bool> {
    Ok(rustix::fs::fstatvfs(handle)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}
