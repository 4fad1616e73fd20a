//! Closed vocabularies: one macro that gives an enum its words, and the one error for a word outside the list.
//!
//! A word is spelled once, beside its variant, and every face of it (text, parsing, JSON) is derived from
//! that place. Nothing here knows any particular vocabulary.

use crate::quote::quote;

/// A text that is not a word of the closed vocabulary it was read for.
///
/// The message quotes the text and lists every allowed word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {}; expected one of: {}", quote(value), allowed.join(", "))]
pub struct UnknownWord {
    kind: &'static str,
    value: String,
    allowed: &'static [&'static str],
}

impl UnknownWord {
    pub(crate) fn new(kind: &'static str, value: &str, allowed: &'static [&'static str]) -> Self {
        Self { kind, value: value.to_owned(), allowed }
    }

    /// Returns the text that was refused, as it was given.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns every word that would have been accepted.
    pub fn allowed(&self) -> &'static [&'static str] {
        self.allowed
    }
}

/// Defines an enum whose variants are words: `ALL`, `as_str`, `Display`, `FromStr` and serde as that word.
macro_rules! closed_words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident ($kind:literal) {
            $( $(#[$variant_meta:meta])* $variant:ident => $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
        }

        impl $name {
            /// Every value, in the order of the vocabulary.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            const WORDS: &'static [&'static str] = &[$( $word, )+];

            /// Returns the word as it stands in JSON, options and messages.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $( $word => Ok(Self::$variant), )+
                    _ => Err($crate::UnknownWord::new($kind, text, Self::WORDS)),
                }
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub)] // the macro's enums are public wherever it is really used
mod tests {
    closed_words! {
        /// Two fruits.
        pub enum Fruit("fruit") {
            /// Sour.
            SourCherry => "sour-cherry",
            /// Sweet.
            Fig => "fig",
        }
    }

    #[test]
    fn every_word_parses_to_its_own_value() {
        for fruit in Fruit::ALL {
            assert_eq!(fruit.as_str().parse::<Fruit>(), Ok(*fruit));
        }
    }

    #[test]
    fn an_unknown_word_is_named_and_the_allowed_ones_are_listed() {
        let error = "Fig\n".parse::<Fruit>().unwrap_err();
        assert_eq!(error.to_string(), "unknown fruit \"Fig\\n\"; expected one of: sour-cherry, fig");
        assert_eq!(error.value(), "Fig\n");
        assert_eq!(error.allowed(), ["sour-cherry", "fig"]);
    }

    #[test]
    fn json_uses_the_word_and_refuses_others() {
        assert_eq!(serde_json::to_string(&Fruit::SourCherry).unwrap(), "\"sour-cherry\"");
        let error = serde_json::from_str::<Fruit>("\"apple\"").unwrap_err();
        assert!(error.to_string().contains("unknown fruit \"apple\""), "{error}");
    }
}
