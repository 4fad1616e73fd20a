//! Where the process stands, and whether that is a place that may become writable by default. What a person
//! names with `--workspace` is judged by the providers; here is only what nobody named.

use pinfold_policy::quote::quote;
use pinfold_policy::{RootProblem, RootRole, SandboxError};
use std::path::{Path, PathBuf};

/// Holds what the process found around itself, in physical spelling where it could be had.
#[derive(Debug)]
pub(crate) struct Surroundings {
    /// The current directory, or why there is none.
    pub(crate) current: Result<PathBuf, String>,
    /// The home directory, if known.
    pub(crate) home: Option<PathBuf>,
    /// The same as the environment spells it: links on the way there count for what must not be replaced.
    pub(crate) named_home: Option<PathBuf>,
    /// Directories that hold our programs.
    pub(crate) own: Vec<PathBuf>,
}

impl Surroundings {
    /// Looks around. State of the providers is not looked for: they refuse to open it whoever asks.
    pub(crate) fn look() -> Self {
        let named_home = std::env::home_dir().filter(|home| home.is_absolute());
        let programs = std::env::current_exe().ok().and_then(|exe| Some(physical(&exe).parent()?.to_owned()));
        Self {
            current: std::env::current_dir().map_err(|error| error.to_string()),
            home: named_home.as_deref().map(physical),
            named_home,
            own: programs.into_iter().collect(),
        }
    }

    /// Returns the current directory as the workspace of a mode that opens it for writing.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` when there is no current directory; `SANDBOX_INVALID_ROOT` when making it writable would
    /// surprise: the root, a directory of the system, the home directory or one that holds it, or one that holds our
    /// programs.
    pub(crate) fn default_workspace(&self) -> Result<PathBuf, SandboxError> {
        let current = self.current_directory()?;
        match self.unfit(current) {
            None => Ok(current.to_owned()),
            Some(reason) => Err(SandboxError::InvalidRoot {
                role: RootRole::Workspace,
                path: current.to_owned(),
                problem: RootProblem::Refused(format!(
                    "it is the current directory and {reason}, so it is not made writable unless you name a workspace"
                )),
            }),
        }
    }

    /// Returns the current directory.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` when it was removed or cannot be named.
    pub(crate) fn current_directory(&self) -> Result<&Path, SandboxError> {
        match &self.current {
            Ok(current) => Ok(current),
            Err(error) => Err(invalid(format!("the current directory cannot be used: {error}"))),
        }
    }

    /// Makes a path absolute. Links stay for the host to resolve, and so does `..` after another name; at the front
    /// of a relative path it is taken off the current directory, which is physical.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for an empty path, or a relative one without a current directory.
    pub(crate) fn absolute(&self, option: &str, path: &Path) -> Result<PathBuf, SandboxError> {
        if path.as_os_str().is_empty() {
            return Err(invalid(format!("{option} is empty")));
        }
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        let (base, rest) = self.base_of(path)?;
        Ok(if rest == Path::new(".") { base.to_owned() } else { base.join(rest) })
    }

    /// Splits a relative path into the directory it starts from and the rest; `..` at its front is taken off.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` without a current directory, if one is needed.
    pub(crate) fn base_of<'a>(&'a self, path: &'a Path) -> Result<(&'a Path, &'a Path), SandboxError> {
        if path.is_absolute() {
            return Ok((Path::new("/"), path));
        }
        let (mut base, mut rest) = (self.current_directory()?, path);
        while let Ok(after) = rest.strip_prefix("..") {
            (base, rest) = (base.parent().unwrap_or(base), after);
        }
        Ok((base, if rest.as_os_str().is_empty() { Path::new(".") } else { rest }))
    }

    /// Says why a directory must not become writable by accident, as the end of a sentence.
    pub(crate) fn unfit(&self, directory: &Path) -> Option<String> {
        if directory.parent().is_none() {
            return Some("is the root of the file tree".to_owned());
        }
        if let Some(home) = &self.home {
            if directory == home {
                return Some("is your home directory".to_owned());
            }
            if home.starts_with(directory) {
                return Some(format!("holds your home directory {}", quote(home)));
            }
        }
        if is_system_directory(directory) {
            return Some("is a directory of the system".to_owned());
        }
        let own = self.own.iter().find(|own| own.starts_with(directory))?;
        Some(format!("holds pinfold's own files in {}", quote(own)))
    }
}

/// Directories that belong to the system with everything below them.
const WHOLE: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libx32",
    "/usr/sbin",
    "/usr/share",
    "/System",
    "/Library",
    "/Applications",
];

/// Directories that belong to the system themselves, and the directories right below the starred ones.
const SHALLOW: &[&str] = &[
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/run/*",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/*",
    "/var",
    "/var/*",
    "/var/lib/*",
    "/Users",
    "/private",
    "/private/*",
    "/Volumes",
];

fn is_system_directory(directory: &Path) -> bool {
    WHOLE.iter().any(|whole| directory.starts_with(whole))
        || SHALLOW.iter().any(|entry| match entry.strip_suffix("/*") {
            Some(parent) => directory.parent() == Some(Path::new(parent)),
            None => directory == Path::new(entry),
        })
}

/// Returns the physical spelling of a path, or the path itself where there is none.
pub(crate) fn physical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn invalid(detail: String) -> SandboxError {
    SandboxError::InvalidPolicy { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(current: &str) -> Surroundings {
        Surroundings {
            current: Ok(current.into()),
            home: Some("/home/ann".into()),
            named_home: None,
            own: vec!["/work/pin/target/debug".into(), "/data/bin".into()],
        }
    }

    fn refusal(current: &str) -> String {
        standing(current).default_workspace().unwrap_err().to_string()
    }

    #[test]
    fn a_project_directory_is_taken() {
        for current in
            ["/home/ann/project", "/work/app", "/workspace", "/srv/app", "/mnt/disk", "/tmp/x", "/home/bob/p"]
        {
            assert_eq!(standing(current).default_workspace(), Ok(current.into()));
        }
    }

    #[test]
    fn the_root_is_refused() {
        assert_eq!(
            refusal("/"),
            "workspace root \"/\" is refused: it is the current directory and is the root of the file tree, so it is \
             not made writable unless you name a workspace"
        );
    }

    #[test]
    fn home_and_what_holds_it_are_refused() {
        assert!(refusal("/home/ann").contains("is your home directory"));
        assert!(refusal("/home").contains("holds your home directory \"/home/ann\""));
    }

    #[test]
    fn directories_of_the_system_are_refused() {
        for current in
            ["/etc", "/etc/nginx", "/usr", "/usr/local", "/usr/lib/x", "/var", "/var/lib", "/var/lib/x", "/tmp"]
        {
            assert!(refusal(current).contains("is a directory of the system"), "{current}");
        }
        for current in ["/proc/self", "/dev/shm", "/run/user", "/root", "/opt"] {
            assert!(refusal(current).contains("is a directory of the system"), "{current}");
        }
    }

    #[test]
    fn what_holds_our_programs_is_refused() {
        for current in ["/work", "/work/pin", "/work/pin/target/debug", "/data", "/data/bin"] {
            assert!(refusal(current).contains("holds pinfold's own files in"), "{current}");
        }
        assert!(standing("/work/pin/target/debug/sub").default_workspace().is_ok());
    }

    #[test]
    fn without_a_current_directory_only_absolute_paths_are_taken() {
        let nowhere = Surroundings { current: Err("gone".into()), home: None, named_home: None, own: vec![] };
        assert!(nowhere.default_workspace().is_err());
        assert!(nowhere.absolute("--workspace", Path::new("x")).is_err());
        assert_eq!(nowhere.absolute("--workspace", Path::new("/x")), Ok("/x".into()));
    }

    #[test]
    fn relative_paths_are_joined_and_links_left_alone() {
        let here = standing("/work/app");
        assert_eq!(here.absolute("--cwd", Path::new("a/../b")), Ok("/work/app/a/../b".into()));
        assert_eq!(here.absolute("--cwd", Path::new("../x/..")), Ok("/work/x/..".into()));
        assert_eq!(here.absolute("--cwd", Path::new("../../../..")), Ok("/".into()));
        assert_eq!(here.absolute("--cwd", Path::new("-x y\n")), Ok("/work/app/-x y\n".into()));
        assert_eq!(here.absolute("--cwd", Path::new("")).unwrap_err().to_string(), "invalid policy: --cwd is empty");
    }
}
