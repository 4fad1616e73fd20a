//! Asks the policy about a place, and notes what it forbids.

use crate::caller::{Caller, Outcome, Refusal};
use crate::denials::Denial;
use crate::resolve::{Name, Object};
use pinfold_policy::{Effect, ProtectionRule};
use rustix::fs::readlinkat;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

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
        match self.path_of_name(name)? {
            Some(path) => {
                self.in_reach(&path, &name.parent)?;
                self.permit_path(operation, &path, effect)
            }
            None => Ok(()),
        }
    }

    /// The same for what is not changed by its name.
    pub(crate) fn permit_place(&self, operation: &'static str, name: &Name, effect: Effect) -> Outcome<()> {
        self.path_of_name(name)?.map_or(Ok(()), |path| self.permit_path(operation, &path, effect))
    }

    /// Where no mount tree stands, names are changed in the writable places alone, by *these* names.
    ///
    /// SECURITY: Landlock knows directories, not paths: a root that was moved, or has another name through another mount,
    /// stays writable for it, and the policy would not know the names in it.
    pub(crate) fn in_reach(&self, path: &Path, parent: impl AsFd) -> Outcome<()> {
        let writable = &self.server.writable;
        if !self.server.governs_metadata || writable.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        // The kernel says it better.
        if is_read_only(parent)? { Ok(()) } else { Err(Errno::ACCESS.into()) }
    }

    pub(crate) fn permit_path(&self, operation: &'static str, path: &Path, effect: Effect) -> Outcome<()> {
        match self.server.protected.rule_on(path, effect, &|path: &Path| self.exists(path)) {
            Some(rule) => Err(self.deny(operation, path, Some(rule))),
            None => Ok(()),
        }
    }

    /// Refuses to change what is behind a handle: content that is protected, or, where no mount tree stands, metadata
    /// outside of what may be written.
    pub(crate) fn permit_object(&self, operation: &'static str, object: &Object, metadata: bool) -> Outcome<()> {
        let path = self.path_of(&object.handle)?;
        if metadata && self.server.governs_metadata && !self.is_writable(&path, object) {
            return Err(self.deny(operation, &path, None));
        }
        if !path.is_absolute() {
            return Ok(());
        }
        if !metadata && !object.is_device() && object.stat.st_nlink > 0 {
            self.in_reach(&path, &object.handle)?;
        }
        self.permit_path(operation, &path, Effect::Alter)
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

    /// Notes a refusal.
    pub(crate) fn deny(&self, operation: &'static str, path: &Path, rule: Option<ProtectionRule>) -> Refusal {
        let denial = Denial { operation, path: path.to_owned(), rule };
        self.server.denials.note(denial, || self.who());
        Refusal::Denied
    }
}

/// Whether what a handle holds lies on a mount that is read-only.
pub(crate) fn is_read_only(handle: impl AsFd) -> Outcome<bool> {
    Ok(rustix::fs::fstatvfs(handle)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}
