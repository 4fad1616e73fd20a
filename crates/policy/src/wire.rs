//! How operating-system text becomes JSON: strict where a program acts on it, escaped where a person reads it.

/// Paths and arguments that a program will act on: UTF-8 or an error.
pub(crate) mod strict {
    use crate::quote::quote;
    use serde::ser::{Error as _, SerializeSeq as _};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    fn text<E: serde::ser::Error>(path: &Path) -> Result<&str, E> {
        path.to_str()
            .ok_or_else(|| E::custom(format_args!("path {} is not valid UTF-8 and has no JSON form", quote(path))))
    }

    pub(crate) mod path {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
            text::<S::Error>(path)?.serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
            String::deserialize(deserializer).map(PathBuf::from)
        }
    }

    pub(crate) mod paths {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(paths.len()))?;
            for path in paths {
                seq.serialize_element(text::<S::Error>(path)?)?;
            }
            seq.end()
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
            let texts = Vec::<String>::deserialize(deserializer)?;
            Ok(texts.into_iter().map(PathBuf::from).collect())
        }
    }

    pub(crate) mod argv {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(argv: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(Some(argv.len()))?;
            for (index, argument) in argv.iter().enumerate() {
                let text = argument.to_str().ok_or_else(|| {
                    S::Error::custom(format_args!(
                        "argv[{index}] {} is not valid UTF-8 and has no JSON form",
                        quote(argument)
                    ))
                })?;
                seq.serialize_element(text)?;
            }
            seq.end()
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OsString>, D::Error> {
            let texts = Vec::<String>::deserialize(deserializer)?;
            Ok(texts.into_iter().map(OsString::from).collect())
        }
    }

    /// Reads a field that may be left out but may not be `null`.
    pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        T::deserialize(deserializer).map(Some)
    }
}

/// Paths that a person reads: bytes that are not UTF-8 appear as `\xHH`, and nothing fails.
pub(crate) mod escaped {
    use crate::quote::readable;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::{Path, PathBuf};

    pub(crate) mod path {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_str(&readable(path))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
            String::deserialize(deserializer).map(PathBuf::from)
        }
    }

    pub(crate) mod paths {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(paths.iter().map(readable))
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
            let texts = Vec::<String>::deserialize(deserializer)?;
            Ok(texts.into_iter().map(PathBuf::from).collect())
        }
    }

    pub(crate) mod optional_path {
        use super::*;

        pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
            path.as_ref().map(readable).serialize(serializer)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
            Ok(Option::<String>::deserialize(deserializer)?.map(PathBuf::from))
        }
    }
}
