//! Variables of our own: those that every command finds, and those that others contribute under declared names.

use crate::environment::PREFIX;
use pinfold_policy::SessionId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Names that nobody else may declare.
const BUILT_IN: [&str; 6] = [
    "PINFOLD_HOME",
    "PINFOLD_SHELL",
    "PINFOLD_SESSION_ID",
    "PINFOLD_SESSION_JSONL",
    "PINFOLD_PROFILE",
    "PINFOLD_PROFILE_DIR",
];

/// Says how a contributor broke the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagedError {
    /// A name is not made of upper-case letters, digits and underscores after the prefix.
    #[error("shell variable {0:?} must begin with PINFOLD_ and hold only A-Z, 0-9 and _")]
    Malformed(String),
    /// A name is one of the built-in ones.
    #[error("shell variable {0} is reserved")]
    Reserved(String),
    /// A name was declared before.
    #[error("shell variable {0} is declared twice")]
    Duplicate(String),
    /// A name comes without a description.
    #[error("shell variable {0} has no description")]
    Undescribed(String),
    /// A value came for a name that was not declared.
    #[error("contributor {contributor:?} returned the undeclared shell variable {name}")]
    Undeclared {
        /// Whose it is.
        contributor: String,
        /// The name.
        name: String,
    },
    /// A value has a NUL byte, which no variable can have.
    #[error("contributor {contributor:?} returned a NUL byte in shell variable {name}")]
    NulByte {
        /// Whose it is.
        contributor: String,
        /// The name.
        name: String,
    },
    /// A directory for PATH is relative or holds a colon.
    #[error(
        "contributor {contributor:?} returned {path:?} for PATH, which is not an absolute directory without a colon"
    )]
    Path {
        /// Whose it is.
        contributor: String,
        /// The path.
        path: PathBuf,
    },
    /// A contributor of that name is there already.
    #[error("contributor {0:?} is registered twice")]
    DuplicateContributor(String),
}

/// Says for whom variables are collected.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The session, if the call has one.
    pub session: Option<SessionId>,
}

/// Gives the values of declared variables for a call.
pub type Values = Box<dyn Fn(&Context) -> BTreeMap<String, OsString> + Send + Sync>;
/// Gives directories for the front of PATH.
pub type Directories = Box<dyn Fn(&Context) -> Vec<PathBuf> + Send + Sync>;
/// Gives the file of a session's log, if it has one.
pub type SessionLog = Box<dyn Fn(&SessionId) -> Option<PathBuf> + Send + Sync>;

/// Holds what every command finds under names of ours.
#[derive(Default)]
pub struct ManagedVariables {
    /// The value of `PINFOLD_HOME`.
    pub home: Option<PathBuf>,
    /// The values of `PINFOLD_PROFILE` and `PINFOLD_PROFILE_DIR`.
    pub profile: Option<(String, PathBuf)>,
    /// Where a session's log is, for `PINFOLD_SESSION_JSONL`.
    pub session_log: Option<SessionLog>,
    contributors: BTreeMap<String, (BTreeMap<String, String>, Values)>,
    directories: BTreeMap<String, Directories>,
}

impl std::fmt::Debug for ManagedVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManagedVariables")
            .field("home", &self.home)
            .field("contributors", &self.contributors.keys())
            .field("directories", &self.directories.keys())
            .finish_non_exhaustive()
    }
}

/// What was collected for one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Variables, sorted by name.
    pub variables: Vec<(OsString, OsString)>,
    /// Directories for the front of PATH, by the names of those who gave them.
    pub path: Vec<OsString>,
}

impl ManagedVariables {
    /// Takes a contributor with the names that it will give values for, each with a description.
    ///
    /// # Errors
    ///
    /// [`ManagedError`] for a name that is malformed, reserved, declared before or not described.
    pub fn register(&mut self, contributor: &str, names: &[(&str, &str)], values: Values) -> Result<(), ManagedError> {
        if self.contributors.contains_key(contributor) {
            return Err(ManagedError::DuplicateContributor(contributor.to_owned()));
        }
        let mut declared = BTreeMap::new();
        for (name, description) in names {
            let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            let known = self.contributors.values().any(|(names, _)| names.contains_key(*name));
            if !name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(fits)) {
                return Err(ManagedError::Malformed((*name).to_owned()));
            } else if BUILT_IN.contains(name) {
                return Err(ManagedError::Reserved((*name).to_owned()));
            } else if description.trim().is_empty() {
                return Err(ManagedError::Undescribed((*name).to_owned()));
            } else if known || declared.insert((*name).to_owned(), (*description).to_owned()).is_some() {
                return Err(ManagedError::Duplicate((*name).to_owned()));
            }
        }
        self.contributors.insert(contributor.to_owned(), (declared, values));
        Ok(())
    }

    /// Takes a contributor of directories for the front of PATH.
    ///
    /// # Errors
    ///
    /// [`ManagedError::DuplicateContributor`].
    pub fn register_path(&mut self, contributor: &str, directories: Directories) -> Result<(), ManagedError> {
        match self.directories.entry(contributor.to_owned()) {
            std::collections::btree_map::Entry::Occupied(_) => {
                Err(ManagedError::DuplicateContributor(contributor.to_owned()))
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(directories);
                Ok(())
            }
        }
    }

    /// Returns the declared names with their descriptions; not the built-in ones.
    pub fn list(&self) -> BTreeMap<String, String> {
        self.contributors.values().flat_map(|(names, _)| names.clone()).collect()
    }

    /// Collects everything for a call.
    ///
    /// # Errors
    ///
    /// [`ManagedError`] if a contributor returns a name that it did not declare, a value that no variable can have, or a
    /// path that cannot stand in PATH.
    pub fn collect(&self, context: &Context) -> Result<Collected, ManagedError> {
        let mut variables: BTreeMap<String, OsString> = BTreeMap::new();
        variables.insert("PINFOLD_SHELL".to_owned(), "1".into());
        let mut built_in = |name: &str, value: Option<OsString>| {
            value.map(|value| variables.insert(name.to_owned(), value));
        };
        built_in("PINFOLD_HOME", self.home.clone().map(Into::into));
        built_in("PINFOLD_PROFILE", self.profile.as_ref().map(|(name, _)| name.into()));
        built_in("PINFOLD_PROFILE_DIR", self.profile.as_ref().map(|(_, directory)| directory.into()));
        built_in("PINFOLD_SESSION_ID", context.session.as_ref().map(|session| session.as_str().into()));
        let log = self.session_log.as_ref().zip(context.session.as_ref());
        built_in("PINFOLD_SESSION_JSONL", log.and_then(|(log, session)| log(session)).map(Into::into));
        for (contributor, (names, values)) in &self.contributors {
            for (name, value) in values(context) {
                let contributor = contributor.clone();
                if !names.contains_key(&name) {
                    return Err(ManagedError::Undeclared { contributor, name });
                }
                if value.as_encoded_bytes().contains(&0) {
                    return Err(ManagedError::NulByte { contributor, name });
                }
                variables.insert(name, value);
            }
        }
        let mut path = Vec::new();
        for (contributor, directories) in &self.directories {
            for directory in directories(context) {
                let bytes = directory.as_os_str().as_encoded_bytes();
                if !directory.is_absolute() || bytes.iter().any(|byte| matches!(byte, b':' | 0)) {
                    return Err(ManagedError::Path { contributor: contributor.clone(), path: directory });
                }
                path.push(directory.into());
            }
        }
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Ok(Collected { variables, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Context {
        Context { session: Some(SessionId::new("s1")) }
    }

    fn nothing() -> Values {
        Box::new(|_| BTreeMap::new())
    }

    /// U582, U585, U587: what is built in, sorted.
    #[test]
    fn every_command_finds_what_is_built_in() {
        let mut managed = ManagedVariables { home: Some("/h".into()), ..ManagedVariables::default() };
        assert_eq!(managed.collect(&Context::default()).unwrap().variables.len(), 2);
        managed.profile = Some(("p".to_owned(), "/p".into()));
        managed.session_log = Some(Box::new(|session| Some(format!("/log/{}.jsonl", session.as_str()).into())));
        let variables = managed.collect(&session()).unwrap().variables;
        let text: Vec<_> =
            variables.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(
            text,
            [
                "PINFOLD_HOME=/h",
                "PINFOLD_PROFILE=p",
                "PINFOLD_PROFILE_DIR=/p",
                "PINFOLD_SESSION_ID=s1",
                "PINFOLD_SESSION_JSONL=/log/s1.jsonl",
                "PINFOLD_SHELL=1"
            ]
        );
    }

    /// U583, U586.
    #[test]
    fn names_are_declared_properly_or_refused() {
        let mut managed = ManagedVariables::default();
        managed.register("good", &[("PINFOLD_X1", "a thing")], nothing()).unwrap();
        assert_eq!(managed.list().into_iter().collect::<Vec<_>>(), [("PINFOLD_X1".to_owned(), "a thing".to_owned())]);
        let mut refused = |name: &str, description| {
            managed.register("bad", &[(name, description)], nothing()).unwrap_err().to_string()
        };
        assert!(refused("X", "d").contains("must begin with PINFOLD_"));
        assert!(refused("PINFOLD_", "d").contains("must begin with"));
        assert!(refused("PINFOLD_x", "d").contains("must begin with"));
        assert_eq!(refused("PINFOLD_SHELL", "d"), "shell variable PINFOLD_SHELL is reserved");
        assert_eq!(refused("PINFOLD_X1", "d"), "shell variable PINFOLD_X1 is declared twice");
        assert_eq!(refused("PINFOLD_X2", " "), "shell variable PINFOLD_X2 has no description");
        assert!(managed.register("good", &[], nothing()).is_err());
    }

    /// U584.
    #[test]
    fn an_undeclared_name_fails_the_call() {
        let mut managed = ManagedVariables::default();
        let values = |_: &Context| BTreeMap::from([("PINFOLD_Y".to_owned(), "v".into())]);
        managed.register("liar", &[("PINFOLD_X", "d")], Box::new(values)).unwrap();
        let error = managed.collect(&session()).unwrap_err();
        assert_eq!(error.to_string(), "contributor \"liar\" returned the undeclared shell variable PINFOLD_Y");
        let mut managed = ManagedVariables::default();
        let values = |_: &Context| BTreeMap::from([("PINFOLD_X".to_owned(), "a\0b".into())]);
        managed.register("nul", &[("PINFOLD_X", "d")], Box::new(values)).unwrap();
        assert!(matches!(managed.collect(&session()), Err(ManagedError::NulByte { .. })));
    }

    /// U587: absolute directories, in the order of the names.
    #[test]
    fn directories_for_path_come_by_name() {
        let mut managed = ManagedVariables::default();
        managed.register_path("b", Box::new(|_| vec!["/b".into()])).unwrap();
        managed.register_path("a", Box::new(|_| vec!["/a1".into(), "/a2".into()])).unwrap();
        assert_eq!(managed.collect(&session()).unwrap().path, ["/a1", "/a2", "/b"].map(OsString::from));
        managed.register_path("c", Box::new(|_| vec!["c:".into()])).unwrap();
        assert!(matches!(managed.collect(&session()), Err(ManagedError::Path { .. })));
    }
}
