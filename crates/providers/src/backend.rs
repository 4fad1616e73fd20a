//! The names of the mechanisms, as a person writes them and as reports write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names one mechanism.
///
/// Its text form is the short name; [`Backend::provider_name`] is the one of reports, and in JSON. Reading
/// accepts both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// Our launcher with namespaces, a mount tree of its own, Landlock and seccomp.
    Namespace,
    /// Bubblewrap with our launcher stacked inside.
    Bwrap,
    /// Our launcher with Landlock and seccomp alone.
    Landlock,
    /// An operator's own runner that speaks bubblewrap's dialect.
    Custom,
    /// No confinement; never in a default chain.
    Unconfined,
}

impl Backend {
    /// Every mechanism, the strongest first.
    pub const ALL: [Self; 5] = [Self::Namespace, Self::Bwrap, Self::Landlock, Self::Custom, Self::Unconfined];

    /// Those that a confined mode can ask for, the strongest first.
    pub const CONFINING: [Self; 4] = [Self::Namespace, Self::Bwrap, Self::Landlock, Self::Custom];

    /// Returns the short name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Custom => "custom",
            Self::Unconfined => "unconfined",
        }
    }

    /// Returns the name that reports and errors use.
    pub const fn provider_name(self) -> &'static str {
        match self {
            Self::Namespace => "linux_namespace",
            Self::Bwrap => "linux_bwrap",
            Self::Landlock => "linux_landlock",
            Self::Custom => "custom_runner",
            Self::Unconfined => "unconfined",
        }
    }
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reports that a text names no mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl UnknownBackend {
    /// Returns the text that was refused.
    pub fn value(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = Backend::CONFINING.map(Backend::provider_name).join(", ");
        write!(f, "unknown backend {}; expected one of: {known}", pinfold_policy::quote::quote(&self.0))
    }
}

impl std::error::Error for UnknownBackend {}

impl From<UnknownBackend> for pinfold_policy::SandboxError {
    fn from(unknown: UnknownBackend) -> Self {
        Self::BackendUnknown {
            name: unknown.0,
            known: Backend::CONFINING.iter().map(|backend| backend.provider_name().to_owned()).collect(),
        }
    }
}

impl std::str::FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|backend| text == backend.as_str() || text == backend.provider_name())
            .ok_or_else(|| UnknownBackend(text.to_owned()))
    }
}

impl Serialize for Backend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.provider_name())
    }
}

impl<'de> Deserialize<'de> for Backend {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_name_the_same_backend() {
        for backend in Backend::ALL {
            assert_eq!(backend.as_str().parse(), Ok(backend));
            assert_eq!(backend.provider_name().parse(), Ok(backend));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let unknown = "Bwrap".parse::<Backend>().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "unknown backend \"Bwrap\"; expected one of: linux_namespace, linux_bwrap, linux_landlock, custom_runner"
        );
    }
}
