//! Calls that change metadata: modes where names are protected, and everything where no mount tree governs it.
//!
//! All of them end at a handle of one file: what was decided on is what is changed.

use crate::caller::{Caller, Outcome};
use crate::resolve::Object;
use crate::serve::Answer;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, removexattr, setxattr,
    utimensat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, AsRawFd as _};

const NOW: i64 = libc::UTIME_NOW;
/// Largest value of an extended attribute, and longest name with its NUL (xattr(7)).
const VALUE_BYTES: u64 = 65536;
const NAME_BYTES: usize = 256;
/// The first and the largest size of the structure of file_setattr(2) that we pass on.
const ATTRIBUTE_BYTES: std::ops::RangeInclusive<u64> = 24..=4096;

/// How many bytes of a value a question shows.
const MOST_TOLD: usize = 64;

const SET_FLAGS: u32 = 0x4008_6602;
const SET_XATTR: u32 = 0x401c_5820;

impl Caller<'_> {
    /// The file that a call with a path, or with an empty one, is about.
    fn subject(&self, directory: i32, path: usize, flags: u32) -> Outcome<Object> {
        let known = (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH) as u32;
        if flags & !known != 0 {
            return Err(Errno::INVAL.into());
        }
        let empty_is_good = flags & libc::AT_EMPTY_PATH as u32 != 0;
        let path = if self.address(path) == 0 && empty_is_good { Vec::new() } else { self.path(path)? };
        if path.is_empty() && empty_is_good {
            let handle =
                if directory == libc::AT_FDCWD { self.working_directory()? } else { self.descriptor(directory)? };
            return Object::of(handle);
        }
        self.object(directory, &path, flags & libc::AT_SYMLINK_NOFOLLOW as u32 == 0)
    }

    fn open_file(&self, descriptor: usize) -> Outcome<Object> {
        // A descriptor with O_PATH is good for none of these calls, but its handle is no different.
        Object::of(self.descriptor(self.directory(descriptor))?)
    }

    /// A path that leads to exactly what a handle holds.
    fn exact(object: &Object) -> String {
        format!("/proc/self/fd/{}", object.handle.as_raw_fd())
    }

    pub(crate) fn chmod_at(&self, directory: i32, path: usize, mode: u32, flags: u32) -> Outcome<Answer> {
        let object = self.subject(directory, path, flags)?;
        self.chmod(&object, mode)
    }

    pub(crate) fn chmod_descriptor(&self, descriptor: usize, mode: u32) -> Outcome<Answer> {
        self.chmod(&self.open_file(descriptor)?, mode)
    }

    fn chmod(&self, object: &Object, mode: u32) -> Outcome<Answer> {
        let _reading = self.server.names.read();
        self.permit_metadata("chmod", object, || format!("mode {mode:04o}"))?;
        if object.kind() == FileType::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        rustix::fs::chmod(Self::exact(object), Mode::from_bits_retain(mode & 0o7777))?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn chown_at(&self, directory: i32, path: usize, ids: [u32; 2], flags: u32) -> Outcome<Answer> {
        let object = self.subject(directory, path, flags)?;
        self.chown(&object, ids)
    }

    pub(crate) fn chown_descriptor(&self, descriptor: usize, ids: [u32; 2]) -> Outcome<Answer> {
        self.chown(&self.open_file(descriptor)?, ids)
    }

    fn chown(&self, object: &Object, [user, group]: [u32; 2]) -> Outcome<Answer> {
        let _reading = self.server.names.read();
        let whose = |id: u32| if id == u32::MAX { "unchanged".to_owned() } else { id.to_string() };
        self.permit_metadata("chown", object, || format!("owner {}, group {}", whose(user), whose(group)))?;
        let user = Some(user).filter(|id| *id != u32::MAX).map(Uid::from_raw);
        let group = Some(group).filter(|id| *id != u32::MAX).map(Gid::from_raw);
        chownat(&object.handle, "", user, group, AtFlags::EMPTY_PATH)?;
        Ok(Answer::Value(0))
    }

    /// utimensat(2): without a path it is about the descriptor itself.
    pub(crate) fn utimensat(&self, directory: i32, path: usize, times: usize, flags: u32) -> Outcome<Answer> {
        let object = if self.address(path) == 0 && directory != libc::AT_FDCWD {
            Object::of(self.descriptor(directory)?)?
        } else {
            self.subject(directory, path, flags)?
        };
        let times = self.numbers(times, 4)?.map(|times| {
            let time = |at: usize| Timespec { tv_sec: times[at], tv_nsec: times[at + 1] };
            Timestamps { last_access: time(0), last_modification: time(2) }
        });
        self.set_times(&object, times)
    }

    /// utimes(2) and futimesat(2): seconds and microseconds.
    pub(crate) fn utimes(&self, directory: i32, path: usize, times: usize) -> Outcome<Answer> {
        let object = if self.address(path) == 0 && directory != libc::AT_FDCWD {
            Object::of(self.descriptor(directory)?)?
        } else {
            self.subject(directory, path, 0)?
        };
        let times = self.numbers(times, 4)?;
        if times
            .as_ref()
            .is_some_and(|times| !(0..1_000_000).contains(&times[1]) || !(0..1_000_000).contains(&times[3]))
        {
            return Err(Errno::INVAL.into());
        }
        let times = times.map(|times| {
            let time = |at: usize| Timespec { tv_sec: times[at], tv_nsec: times[at + 1] * 1000 };
            Timestamps { last_access: time(0), last_modification: time(2) }
        });
        self.set_times(&object, times)
    }

    /// utime(2): seconds.
    pub(crate) fn utime(&self, path: usize, times: usize) -> Outcome<Answer> {
        let object = self.subject(libc::AT_FDCWD, path, 0)?;
        let times = self.numbers(times, 2)?.map(|times| {
            let time = |at: usize| Timespec { tv_sec: times[at], tv_nsec: 0 };
            Timestamps { last_access: time(0), last_modification: time(1) }
        });
        self.set_times(&object, times)
    }

    fn set_times(&self, object: &Object, times: Option<Timestamps>) -> Outcome<Answer> {
        let _reading = self.server.names.read();
        let now = Timespec { tv_sec: 0, tv_nsec: NOW };
        let times = times.unwrap_or(Timestamps { last_access: now, last_modification: now });
        self.permit_metadata("utime", object, || {
            format!("accessed {}, modified {}", told(&times.last_access), told(&times.last_modification))
        })?;
        utimensat(&object.handle, "", &times, AtFlags::EMPTY_PATH)?;
        Ok(Answer::Value(0))
    }

    /// Reads so many 64-bit numbers; none where the pointer is null.
    fn numbers(&self, argument: usize, count: usize) -> Outcome<Option<Vec<i64>>> {
        let address = self.address(argument);
        if address == 0 {
            return Ok(None);
        }
        let bytes = self.bytes(address, count * 8)?;
        let number = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        Ok(Some(bytes.chunks_exact(8).map(number).collect()))
    }

    pub(crate) fn set_xattr_at(&self, path: usize, arguments: usize, follow: bool) -> Outcome<Answer> {
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW as u32 };
        let object = self.subject(libc::AT_FDCWD, path, flags)?;
        self.set_xattr(&object, arguments)
    }

    pub(crate) fn set_xattr_descriptor(&self, descriptor: usize, arguments: usize) -> Outcome<Answer> {
        self.set_xattr(&self.open_file(descriptor)?, arguments)
    }

    /// Name, value, size and flags stand from `at` on.
    fn set_xattr(&self, object: &Object, at: usize) -> Outcome<Answer> {
        let (value, size, flags) = (self.address(at + 1), self.address(at + 2), self.number(at + 3));
        self.set_attribute(object, self.address(at), value, size, flags)
    }

    fn set_attribute(&self, object: &Object, name: u64, value: u64, size: u64, flags: u32) -> Outcome<Answer> {
        if size > VALUE_BYTES {
            return Err(Errno::TOOBIG.into());
        }
        let name = self.text(name, NAME_BYTES, Errno::RANGE)?;
        let value = self.bytes(value, size as usize)?;
        let _reading = self.server.names.read();
        self.permit_metadata("setxattr", object, || attribute(&name, Some(&value)))?;
        setxattr(Self::exact(object), name, &value, XattrFlags::from_bits_retain(flags))?;
        Ok(Answer::Value(0))
    }

    /// setxattrat(2): directory, path, flags, name, then a structure of value (8 bytes), size (4) and flags (4).
    pub(crate) fn setxattrat(&self) -> Outcome<Answer> {
        if self.address(5) != 16 {
            return Err(Errno::INVAL.into());
        }
        let object = self.subject(self.directory(0), 1, self.number(2))?;
        let arguments = self.bytes(self.address(4), 16)?;
        let word = |at: usize| u32::from_ne_bytes(arguments[at..at + 4].try_into().unwrap_or_default());
        let value = u64::from(word(0)) | (u64::from(word(4)) << 32);
        self.set_attribute(&object, self.address(3), value, word(8).into(), word(12))
    }

    pub(crate) fn remove_xattr_at(&self, directory: i32, path: usize, name: usize, flags: u32) -> Outcome<Answer> {
        let object = self.subject(directory, path, flags)?;
        self.remove_xattr(&object, name)
    }

    pub(crate) fn remove_xattr_descriptor(&self, descriptor: usize, name: usize) -> Outcome<Answer> {
        self.remove_xattr(&self.open_file(descriptor)?, name)
    }

    fn remove_xattr(&self, object: &Object, name: usize) -> Outcome<Answer> {
        let name = self.text(self.address(name), NAME_BYTES, Errno::RANGE)?;
        let _reading = self.server.names.read();
        self.permit_metadata("removexattr", object, || attribute(&name, None))?;
        removexattr(Self::exact(object), name)?;
        Ok(Answer::Value(0))
    }

    /// file_setattr(2): directory, path, structure, its size, flags.
    pub(crate) fn file_setattr(&self) -> Outcome<Answer> {
        let size = self.address(3);
        if !ATTRIBUTE_BYTES.contains(&size) {
            return Err(Errno::INVAL.into());
        }
        let object = self.subject(self.directory(0), 1, self.number(4))?;
        let attributes = self.bytes(self.address(2), size as usize)?;
        let _reading = self.server.names.read();
        self.permit_metadata("setattr", &object, || format!("attributes {}", hexadecimal(&attributes)))?;
        crate::sys::set_attributes(object.handle.as_fd(), &attributes)?;
        Ok(Answer::Value(0))
    }

    /// Requests of ioctl(2) that the filter does not know to be harmless: two set flags of files; nothing else is done.
    pub(crate) fn ioctl(&self) -> Outcome<Answer> {
        let object = self.open_file(0)?;
        let request = self.number(1);
        let length = match request {
            // The kernel reads an int, whatever the number says.
            SET_FLAGS => 4,
            SET_XATTR => 28,
            _ => {
                let path = self.path_of(&object.handle)?;
                return Err(self.deny("ioctl", &path, None));
            }
        };
        let argument = self.bytes(self.address(2), length)?;
        let _reading = self.server.names.read();
        self.permit_metadata("setattr", &object, || format!("flags {}", hexadecimal(&argument)))?;
        if !matches!(object.kind(), FileType::RegularFile | FileType::Directory) {
            return Err(Errno::NOTTY.into());
        }
        let file = self.open_again(&object, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?;
        crate::sys::request(file.as_fd(), request, &argument)?;
        Ok(Answer::Value(0))
    }
}

/// A time as whoever is asked about it reads it.
fn told(time: &Timespec) -> String {
    match time.tv_nsec {
        NOW => "now".to_owned(),
        libc::UTIME_OMIT => "unchanged".to_owned(),
        nanoseconds => format!("{}.{nanoseconds:09} s after 1970", time.tv_sec),
    }
}

fn attribute(name: &[u8], value: Option<&[u8]>) -> String {
    let name = crate::denials::escaped(name);
    match value {
        Some(value) if value.len() <= MOST_TOLD => format!("attribute {name} {}", hexadecimal(value)),
        Some(value) => format!("attribute {name} {}... ({} bytes)", hexadecimal(&value[..MOST_TOLD]), value.len()),
        None => format!("no attribute {name}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().take(MOST_TOLD).map(|byte| format!("{byte:02x}")).collect()
}
