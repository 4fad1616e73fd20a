//! The arguments of `pinfold-broker`: strict, each with its meaning, as for the launcher.
//!
//! ```text
//! pinfold-broker --spec 1 OPTION... -- LAUNCHER ARGUMENT...
//! ```
//!
//! | option | meaning | times |
//! |---|---|---|
//! | `--wall namespace` / `landlock` | which walls the launcher raises; with `landlock` metadata is governed here | required |
//! | `--root PATH` | a writable root in which names are protected | any number |
//! | `--write DEV:INODE PATH` | `landlock`: a directory in which the command may write; everything else is refused here as well | any number |
//! | `--home PATH` | the user's home directory | once |
//! | `--protect-default` | the default names are protected | once |
//! | `--protect PATTERN` | what matches this absolute pattern is protected | any number |
//! | `--protect-path RULE PATH` | this path is protected, for this reason | any number |
//! | `--status-fd N` / `--status-file PATH` | where refusals are reported. The launcher inherits the descriptor, or gets the file as descriptor [`STATUS`] | one, once |
//! | `--connections` | the launcher leaves connections to us: unix sockets by path are closed but for those of the next three | once |
//! | `--connect PATH` | every socket at or below this path may be connected to | any number |
//! | `--connect-new PATH` | those below it that were bound since we began | any number |
//! | `--connect-temp PATH` | every socket below it that lies below no path of the option before | any number |
//! | `--ask-fd N`, `--ask-seconds S` | a packet socket on which somebody is asked about refusals, and for how long (see `asks`) | both, once |
//! | `--never-ask PATH` | what lies there is refused without a question | any number |
//! | `--observe` | what the walls refuse is reported as well | once |

use crate::connect::Reach;
use pinfold_policy::pattern::PathPattern;
use pinfold_policy::{ProtectedNames, ProtectionRule};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The descriptor on which the launcher finds its end of the socket, for `--broker-fd`.
pub(crate) const SOCKET: i32 = 98;
/// The descriptor on which the launcher finds the status file, for `--status-fd`.
pub(crate) const STATUS: i32 = 97;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    Namespace,
    Landlock,
}

/// A directory in which the command may write, and the identity that it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Writable {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Nowhere,
    Descriptor(i32),
    File(PathBuf),
}

/// Whether and how somebody is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) patience: Duration,
    pub(crate) never: Vec<PathBuf>,
}

/// What to do.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) wall: Wall,
    pub(crate) protected: ProtectedNames,
    pub(crate) writable: Vec<Writable>,
    pub(crate) status: Status,
    pub(crate) asking: Option<(i32, Asking)>,
    /// Whether refusals of the walls are told as well.
    pub(crate) observes: bool,
    /// Where the command may connect to, if we answer for connections.
    pub(crate) reach: Option<Reach>,
    /// The launcher and its arguments; never empty.
    pub(crate) launcher: Vec<OsString>,
}

/// Reads the arguments behind the program's name.
pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Plan, String> {
    let mut words = arguments.into_iter();
    if words.next().is_none_or(|word| word != "--spec") || words.next().is_none_or(|word| word != "1") {
        return Err("the first arguments must be --spec 1".to_owned());
    }
    let (mut wall, mut home, mut status, mut default_names) = (None, None, Status::Nowhere, false);
    let (mut roots, mut writable, mut patterns, mut paths) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut ask, mut patience, mut never) = (None, None, Vec::new());
    let mut observes = false;
    let (mut connections, mut reach) = (false, Reach::default());
    loop {
        let Some(option) = words.next() else { return Err("missing `-- LAUNCHER`".to_owned()) };
        let mut value = || words.next().ok_or_else(|| format!("{} lacks its value", option.to_string_lossy()));
        let twice = match option.to_str() {
            Some("--") => break,
            Some("--wall") => {
                let word = value()?;
                let named = match word.to_str() {
                    Some("namespace") => Wall::Namespace,
                    Some("landlock") => Wall::Landlock,
                    _ => return Err("--wall is namespace or landlock".to_owned()),
                };
                wall.replace(named).is_some()
            }
            Some("--root") => {
                roots.push(absolute(&value()?)?);
                false
            }
            Some("--write") => {
                let (device, inode) = identity(&value()?)?;
                writable.push(Writable { device, inode, path: absolute(&value()?)? });
                false
            }
            Some("--home") => home.replace(absolute(&value()?)?).is_some(),
            Some("--observe") => std::mem::replace(&mut observes, true),
            Some("--protect-default") => std::mem::replace(&mut default_names, true),
            Some("--protect") => {
                let text = value()?;
                absolute(&text)?;
                patterns.push(PathPattern::parse(&text, Path::new("/"), None).map_err(|error| error.to_string())?);
                false
            }
            Some("--protect-path") => {
                let word = value()?;
                let rule: Option<ProtectionRule> = word.to_str().and_then(|word| word.parse().ok());
                let rule = rule.ok_or_else(|| format!("{} is not a rule", word.to_string_lossy()))?;
                paths.push((absolute(&value()?)?, rule));
                false
            }
            Some("--ask-fd") => ask.replace(descriptor("--ask-fd", &value()?)?).is_some(),
            Some("--ask-seconds") => {
                let word = value()?;
                let seconds = word.to_str().and_then(|word| word.parse().ok()).filter(|seconds| *seconds > 0);
                let seconds: u32 = seconds.ok_or_else(|| "--ask-seconds is not a number above 0".to_owned())?;
                patience.replace(Duration::from_secs(seconds.into())).is_some()
            }
            Some("--never-ask") => {
                never.push(absolute(&value()?)?);
                false
            }
            Some("--connections") => std::mem::replace(&mut connections, true),
            Some("--connect") => {
                reach.allowed.push(absolute(&value()?)?);
                false
            }
            Some("--connect-new") => {
                reach.roots.push(absolute(&value()?)?);
                false
            }
            Some("--connect-temp") => {
                reach.temps.push(absolute(&value()?)?);
                false
            }
            Some("--status-fd") => {
                let number = descriptor("--status-fd", &value()?)?;
                std::mem::replace(&mut status, Status::Descriptor(number)) != Status::Nowhere
            }
            Some("--status-file") => {
                std::mem::replace(&mut status, Status::File(absolute(&value()?)?)) != Status::Nowhere
            }
            _ => return Err(format!("unknown argument: {}", option.to_string_lossy())),
        };
        if twice {
            return Err(format!("{} may stand once", option.to_string_lossy()));
        }
    }
    let launcher: Vec<OsString> = words.collect();
    if launcher.is_empty() {
        return Err("missing `-- LAUNCHER`".to_owned());
    }
    let mut protected = ProtectedNames::below(roots);
    if default_names {
        protected = protected.with_default_names(home.as_deref());
    }
    protected = patterns.into_iter().fold(protected, ProtectedNames::with_pattern);
    protected = paths.into_iter().fold(protected, |protected, (path, rule)| protected.with_path(path, rule));
    let wall = wall.ok_or_else(|| "--wall is required".to_owned())?;
    let asking = match (ask, patience) {
        (Some(ask), Some(patience)) => Some((ask, Asking { patience, never })),
        (None, None) => None,
        _ => return Err("--ask-fd and --ask-seconds belong together".to_owned()),
    };
    if !connections && [&reach.allowed, &reach.roots, &reach.temps].iter().any(|places| !places.is_empty()) {
        return Err("--connect and its like need --connections".to_owned());
    }
    let reach = connections.then_some(reach);
    Ok(Plan { wall, protected, writable, status, asking, reach, observes, launcher })
}

fn descriptor(option: &str, word: &OsStr) -> Result<i32, String> {
    let number = word.to_str().and_then(|word| word.parse().ok()).filter(|number| *number > 2);
    number.ok_or_else(|| format!("{option} is not a descriptor above 2"))
}

fn absolute(word: &OsStr) -> Result<PathBuf, String> {
    let path = PathBuf::from(word);
    if path.is_absolute() { Ok(path) } else { Err(format!("not an absolute path: {}", path.display())) }
}

fn identity(word: &OsStr) -> Result<(u64, u64), String> {
    let numbers = word.to_str().and_then(|text| text.split_once(':'));
    let numbers = numbers.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    numbers.ok_or_else(|| format!("not DEVICE:INODE: {}", word.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Plan, String> {
        read(text.split(' ').map(OsString::from))
    }

    #[test]
    fn a_plan_is_read() {
        let plan = of("--spec 1 --wall landlock --root /w --write 1:2 /w --protect-default --home /h --protect /w/x* \
                       --protect-path git-target /w/h --status-fd 7 --ask-fd 8 --ask-seconds 9 --never-ask /n --connections --connect /a --connect-new /w --connect-temp /t --observe -- /bin/run --spec 1 -- true")
        .unwrap();
        assert_eq!((plan.wall, plan.status), (Wall::Landlock, Status::Descriptor(7)));
        assert_eq!(plan.writable, [Writable { device: 1, inode: 2, path: "/w".into() }]);
        assert_eq!(plan.launcher.len(), 5);
        let asking = Asking { patience: Duration::from_secs(9), never: vec!["/n".into()] };
        assert_eq!(plan.asking, Some((8, asking)));
        let reach = plan.reach.unwrap();
        let path = |text: &str| vec![PathBuf::from(text)];
        assert_eq!([reach.allowed, reach.roots, reach.temps], [path("/a"), path("/w"), path("/t")]);
        assert!(!plan.protected.is_empty() && plan.observes);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "",
            "--spec 2 --wall landlock -- x",
            "--spec 1 -- x",
            "--spec 1 --wall landlock",
            "--spec 1 --wall landlock --",
            "--spec 1 --wall none -- x",
            "--spec 1 --wall landlock --wall landlock -- x",
            "--spec 1 --wall landlock --root w -- x",
            "--spec 1 --wall landlock --write 1 /w -- x",
            "--spec 1 --wall landlock --protect x -- x",
            "--spec 1 --wall landlock --protect-path what /x -- x",
            "--spec 1 --wall landlock --status-fd 2 -- x",
            "--spec 1 --wall landlock --status-fd 7 --status-file /x -- x",
            "--spec 1 --wall landlock --ask-fd 7 -- x",
            "--spec 1 --wall landlock --ask-seconds 7 -- x",
            "--spec 1 --wall landlock --ask-fd 2 --ask-seconds 7 -- x",
            "--spec 1 --wall landlock --ask-fd 7 --ask-seconds 0 -- x",
            "--spec 1 --wall landlock --ask-fd 7 --ask-seconds 7 --never-ask x -- x",
            "--spec 1 --wall landlock --observe --observe -- x",
            "--spec 1 --wall landlock --connect /x -- x",
            "--spec 1 --wall landlock --connections --connect-new x -- x",
            "--spec 1 --wall landlock --more -- x",
        ] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
