//! A call whose walls stand before anybody knows what it will execute (`docs/launcher.md`, "A call prepared ahead").
//!
//! The process that becomes the command waits here, confined already: what it does from now on it does as the command could.
//! What was true when its walls were raised may have changed; so it looks at every one that somebody can take away.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::command::{Called, Directory};
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::landlock;
use crate::serve;
use crate::spec::{self, Plan, Role};
use crate::streams;
use crate::sys::{self, MOST_DESCRIPTORS};
use crate::words::Words;

/// The version of what the caller sends.
const VERSION: i32 = 1;

/// Numbers in a message: the version, and one for each stream that is not empty.
const NUMBERS: usize = 4;

/// Waits for the command; ends if none will come.
pub(crate) fn wait(plan: &Plan, socket: i32) -> Result<Called, Failure> {
    let mut bytes = [0_u8; NUMBERS * size_of::<i32>()];
    let mut descriptors = [-1; MOST_DESCRIPTORS];
    let (length, count) = loop {
        match sys::receive(socket, &mut bytes, &mut descriptors) {
            // Nobody can send any more, or nobody has for as long as the socket waits (SO_RCVTIMEO).
            Ok((0, _)) | Err(Errno::AGAIN) => sys::exit(0),
            Err(Errno::INTR) => {}
            received => break received.or_fail("spec", "cannot receive a command")?,
        }
    };
    let (numbers, _) = bytes.as_chunks();
    let mut numbers = numbers.iter().map(|number| i32::from_ne_bytes(*number));
    if count < 2 || length != (count - 1) * size_of::<i32>() || numbers.next() != Some(VERSION) {
        return Err(Failure::new("spec", "a command comes with a version, its words, a directory and its streams"));
    }
    let [block, directory] = [descriptors[0], descriptors[1]];
    for (stream, number) in descriptors[..count].iter().skip(2).zip(numbers) {
        streams::take(*stream, number)?;
    }
    let (command, mut words) = serve::counted(Words::Block(spec::load(block)?))?;
    let path = words.next().filter(|path| path.to_bytes().starts_with(b"/"));
    let path = path.ok_or(Failure::new("spec", "the working directory is not an absolute path"))?;
    let identity = sys::fstat(directory).or_fail("cwd", "cannot examine the working directory")?;
    let called = Called { command, environment: serve::all(words)?, directory: Some(Directory { path, identity }) };
    still_stands(plan)?;
    // RACE: from this byte on the caller takes the call for begun, and begins no other.
    sys::write(socket, &[1]).or_fail("spec", "the caller has gone")?;
    // SECURITY: it is the caller's number, which no exec closes.
    sys::close(socket);
    Ok(called)
}

/// Whether every mount is where it was put. Who moves, replaces or removes what is mounted over, outside or in another call,
/// takes the mount away here too (rename(2), unlink(2), rmdir(2) since Linux 3.19).
fn still_stands(plan: &Plan) -> Result<(), Failure> {
    for root in plan.writable_roots() {
        let fd = sys::open(sys::CWD, root.path, g::O_PATH | g::O_NOFOLLOW, 0)
            .or_fail("root-changed", "cannot open the writable root")
            .map_err(|failure| failure.of(root.path))?;
        landlock::check_root(fd, &root, true)?;
        sys::close(fd);
    }
    let placed = plan.placed().map(|(_, at)| at);
    for path in placed.chain(plan.paths(Role::Private)) {
        stands("mount-private", look(path)? == Some(true), path)?;
    }
    for role in [Role::Cover, Role::Hollow, Role::OwnCopy, Role::Keep] {
        for path in plan.paths(role) {
            // What was not there, or cannot be reached, needs no wall.
            stands("mount-cover", look(path)? != Some(false), path)?;
        }
    }
    Ok(())
}

fn stands(stage: &'static str, it: bool, path: &'static CStr) -> Result<(), Failure> {
    if it { Ok(()) } else { Err(Failure::new(stage, "a wall does not stand any more:").of(path)) }
}

/// Whether a mount begins at a path; `None` if nothing can be reached there.
fn look(path: &'static CStr) -> Result<Option<bool>, Failure> {
    let fd = match sys::open(sys::CWD, path, g::O_PATH | g::O_NOFOLLOW, 0) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCES) => return Ok(None),
        opened => opened.or_fail("mount-cover", "cannot look at").map_err(|failure| failure.of(path))?,
    };
    let begins = sys::begins_a_mount(fd);
    sys::close(fd);
    begins.map(Some).or_fail("mount-cover", "cannot look at").map_err(|failure| failure.of(path))
}
