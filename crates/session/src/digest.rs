//! Digests: what a grant is bound to, what a policy is told by, and what chains a log.
//!
//! Everything that is hashed is framed by its length, so that no two different calls have one digest.

use pinfold_policy::{ExecutionPolicy, Restrictions};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::path::Path;

/// A SHA-256 digest; as text, 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of nothing, from which a log begins.
    pub(crate) const ZERO: Self = Self([0; 32]);

    /// Hashes parts that follow a digest without frames; for whole lines only.
    pub(crate) fn chain(self, line: &[u8]) -> Self {
        Self(Sha256::new().chain_update(self.0).chain_update(line).finalize().into())
    }

    pub(crate) fn to_hex(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (index, byte) in self.0.iter().enumerate() {
            hex[2 * index] = DIGITS[usize::from(byte >> 4)];
            hex[2 * index + 1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_hex().iter().try_for_each(|digit| write!(f, "{}", char::from(*digit)))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let whole = text.len() == 64
            && text.as_bytes().chunks_exact(2).zip(&mut bytes).all(|(pair, byte)| {
                digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| *byte = high << 4 | low).is_some()
            });
        if whole { Ok(Self(bytes)) } else { Err("not 64 lower-case hexadecimal digits".to_owned()) }
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Hashes framed parts under a name of what they are.
pub(crate) struct Framed(Sha256);

impl Framed {
    pub(crate) fn new(what: &str) -> Self {
        Self(Sha256::new()).part(what.as_bytes())
    }

    pub(crate) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    pub(crate) fn path(self, path: &Path) -> Self {
        self.part(path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn list<'a>(self, parts: impl ExactSizeIterator<Item = &'a [u8]>) -> Self {
        let counted = self.part(&(parts.len() as u64).to_be_bytes());
        parts.fold(counted, Self::part)
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Returns the digest of an argv: what a log keeps instead of the words themselves.
pub fn of_argv(argv: &[OsString]) -> Digest {
    Framed::new("pinfold argv 1").list(argv.iter().map(|word| word.as_encoded_bytes())).finish()
}

/// Returns the digest of a policy with what is closed beside it: equal exactly if both are.
pub fn of_policy(policy: &ExecutionPolicy, restrictions: &Restrictions) -> Digest {
    let bytes = |path: &'_ std::path::PathBuf| path.as_os_str().as_encoded_bytes().to_vec();
    let lists = |paths: &[std::path::PathBuf]| paths.iter().map(bytes).collect::<Vec<_>>();
    let mut framed = Framed::new("pinfold policy 1").part(policy.mode.as_str().as_bytes()).path(&policy.workspace_root);
    for paths in [&policy.additional_writable_roots, &restrictions.allowed_sockets, &restrictions.denied_reads] {
        framed = framed.list(lists(paths).iter().map(Vec::as_slice));
    }
    // What others add to the restrictions is part of it too, without a line here. A path that is not UTF-8 has no such
    // form; it stands above.
    let mut named = restrictions.clone();
    (named.allowed_sockets, named.denied_reads) = (Vec::new(), Vec::new());
    let rest = serde_json::to_vec(&named).unwrap_or_else(|_| format!("{named:?}").into_bytes());
    framed.part(&rest).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::{Network, SandboxMode};

    #[test]
    fn text_and_digest_are_one() {
        let digest = of_argv(&["a".into()]);
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in ["", "0", &"g".repeat(64), &"A".repeat(64), &"0".repeat(65)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn words_that_are_cut_elsewhere_are_another_argv() {
        let argv = |words: &[&str]| of_argv(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_ne!(argv(&["ab", "c"]), argv(&["a", "bc"]));
        assert_ne!(argv(&["a", ""]), argv(&["a"]));
        assert_ne!(argv(&[]), argv(&[""]));
    }

    #[test]
    fn every_part_of_a_policy_changes_its_digest() {
        let base = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, "/w");
        let none = Restrictions::default();
        let mut other = base.clone();
        other.additional_writable_roots.push("/x".into());
        let mut seen = vec![of_policy(&base, &none), of_policy(&other, &none)];
        seen.push(of_policy(&ExecutionPolicy::new(SandboxMode::ReadOnly, "/w"), &none));
        seen.push(of_policy(&ExecutionPolicy::new(SandboxMode::WorkspaceWrite, "/v"), &none));
        seen.push(of_policy(&base, &Restrictions { network: Network::Off, ..none.clone() }));
        seen.push(of_policy(&base, &Restrictions { denied_reads: vec!["/x".into()], ..none.clone() }));
        seen.push(of_policy(&base, &Restrictions { allowed_sockets: vec!["/x".into()], ..none.clone() }));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert_eq!(of_policy(&base, &none), of_policy(&base.clone(), &none));
    }
}
