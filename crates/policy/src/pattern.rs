//! Path patterns: which paths a rule speaks of, as bytes and without looking at a file system.
//!
//! One engine for every rule that names paths (denied reads, protected names, the file fence), so that one spelling
//! means one thing. The matching is globset's; what is ours is the split into a literal beginning, from which a walk can
//! start, and the rest.
//!
//! | part | matches |
//! |---|---|
//! | `?` | one byte of a name (a letter beyond ASCII is several) |
//! | `*` | any bytes of one name, also none, also a leading dot |
//! | `[a-z]`, `[!a-z]` | one byte; ASCII only |
//! | `{a,b}` | one of these |
//! | `**` as a whole name | any number of names, also none |
//! | `\*` | the character behind the backslash, as itself |
//!
//! A final `/**` stands for the directory before it as well: what lies in a directory is not safe while the directory
//! itself can be listed or moved. A pattern that does not begin with `/` is relative to a root, and only there: `*.pem`
//! is not `**/*.pem`. Letters are told apart by case. Matching is by spelling, so paths that are compared must be
//! physical: without `.`, `..` and links.
//!
//! What must not enter: looking at a file, and asking for the home directory; both are given by the caller.
//!
//! Reference: globset 0.4, "Syntax"; glob(7) for the words.

use crate::SandboxError;
use crate::quote::quote;
use globset::{ErrorKind, GlobBuilder, GlobSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The longest pattern, in bytes: that of a path on Linux (`PATH_MAX`).
pub const MAX_PATTERN_BYTES: usize = 4096;

/// Characters that make a name more than itself, unless a backslash stands before them.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];

/// Tells what a pattern is, as far as a wall that is put over paths must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternShape {
    /// One path, whatever is there: no part of it is special.
    Path,
    /// A directory and everything below it: `dir/**`.
    Subtree,
    /// Anything else; which paths it matches is known only by looking at them.
    Wildcard,
}

/// Holds one pattern, ready to be matched.
#[derive(Debug, Clone)]
pub struct PathPattern {
    text: OsString,
    base: PathBuf,
    rest: Option<Rest>,
    below: bool,
}

/// What follows the literal beginning.
#[derive(Debug, Clone)]
struct Rest {
    text: String,
    whole: GlobSet,
    /// One matcher for each name that can be told alone, up to the first that may stand for several.
    names: Vec<GlobSet>,
    /// Whether a name follows them that may stand for several.
    open: bool,
    /// If the first is `**` and no other may stand for several: one matcher for each behind it.
    behind: Vec<GlobSet>,
}

/// States why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pattern {} {problem}", quote(pattern))]
pub struct PatternError {
    /// The pattern as it was given.
    pub pattern: OsString,
    /// What is wrong with it.
    pub problem: PatternProblem,
}

/// Says what is wrong with a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// It has no byte.
    #[error("is empty")]
    Empty,
    /// It holds a NUL byte.
    #[error("holds a NUL byte")]
    NulByte,
    /// It is longer than [`MAX_PATTERN_BYTES`].
    #[error("is longer than {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    /// It holds `..`.
    #[error("holds `..`; name the path itself")]
    Parent,
    /// It begins with `~/`, and no home directory was given.
    #[error("begins with `~`, but no home directory is known")]
    NoHome,
    /// It begins with `~name`.
    #[error("begins with `~` and a name, which is not looked up; write the path, or `\\~` for a name that begins so")]
    OtherHome,
    /// A name with special characters is not UTF-8.
    #[error("has special characters in a name that is not UTF-8")]
    NotUtf8,
    /// A character class may hold more than ASCII.
    #[error("has a `[…]` in a name with letters beyond ASCII, where it would match single bytes of them; use `{{…}}`")]
    ClassBeyondAscii,
    /// A `[` is not closed within its name.
    #[error("has a `[` without a `]` in the same name; write `\\[` for the character itself")]
    UnclosedClass,
    /// A `{` is not closed.
    #[error("has a `{{` without a `}}`; write `\\{{` for the character itself")]
    UnclosedAlternates,
    /// A `}` was not opened.
    #[error("has a `}}` without a `{{`; write `\\}}` for the character itself")]
    UnopenedAlternates,
    /// It ends in a backslash.
    #[error("has a backslash with nothing behind it")]
    DanglingEscape,
    /// It was refused for another reason, which the text names.
    #[error("is not a pattern: {0}")]
    Other(String),
}

impl From<PatternError> for SandboxError {
    fn from(error: PatternError) -> Self {
        Self::InvalidPolicy { detail: error.to_string() }
    }
}

impl PathPattern {
    /// Reads a pattern: absolute, `~/…` below `home`, or else relative to `root`. Both are taken as they are.
    ///
    /// # Errors
    ///
    /// A [`PatternError`] that names the pattern and what is wrong with it.
    pub fn parse(text: &OsStr, root: &Path, home: Option<&Path>) -> Result<Self, PatternError> {
        let refuse = |problem| PatternError { pattern: text.to_owned(), problem };
        Self::read(text, root, home).map_err(refuse)
    }

    fn read(text: &OsStr, root: &Path, home: Option<&Path>) -> Result<Self, PatternProblem> {
        match text.as_encoded_bytes() {
            [] => return Err(PatternProblem::Empty),
            bytes if bytes.contains(&0) => return Err(PatternProblem::NulByte),
            bytes if bytes.len() > MAX_PATTERN_BYTES => return Err(PatternProblem::TooLong),
            _ => {}
        }
        let mut names = Vec::new();
        let mut base = root.to_owned();
        for (index, component) in Path::new(text).components().enumerate() {
            match component {
                Component::Normal(name) if index == 0 && name.as_encoded_bytes()[0] == b'~' => {
                    if name != "~" {
                        return Err(PatternProblem::OtherHome);
                    }
                    home.ok_or(PatternProblem::NoHome)?.clone_into(&mut base);
                }
                Component::Normal(name) => names.push(name),
                Component::RootDir | Component::Prefix(_) => base.push(component),
                Component::CurDir => {}
                Component::ParentDir => return Err(PatternProblem::Parent),
            }
        }
        let literal = names.iter().take_while(|name| !is_special(name)).count();
        for name in &names[..literal] {
            base.push(unescaped(name)?);
        }
        let mut names = &names[literal..];
        let mut below = false;
        while let Some((_, before)) = names.split_last().filter(|(last, _)| **last == "**") {
            (names, below) = (before, true);
        }
        let rest = if names.is_empty() { None } else { Some(Rest::read(names)?) };
        Ok(Self { text: text.to_owned(), base, rest, below })
    }

    /// Returns the pattern as it was given.
    pub fn text(&self) -> &OsStr {
        &self.text
    }

    /// Returns what kind of pattern it is.
    pub fn shape(&self) -> PatternShape {
        match (&self.rest, self.below) {
            (None, false) => PatternShape::Path,
            (None, true) => PatternShape::Subtree,
            (Some(_), _) => PatternShape::Wildcard,
        }
    }

    /// Returns the part before the first special name: the path itself, the directory of a subtree, or where a walk for
    /// matches can start. Everything that matches is this path or lies below it.
    pub fn literal_prefix(&self) -> &Path {
        &self.base
    }

    /// Returns a pattern that means the same without a root and a home directory; what was literal in them is escaped.
    pub fn absolute(&self) -> PathBuf {
        let mut text = PathBuf::new();
        for component in self.base.components() {
            match component {
                Component::Normal(name) => text.push(escaped(name)),
                other => text.push(other),
            }
        }
        text.extend(self.rest.as_ref().map(|rest| Path::new(&rest.text)));
        text.extend(self.below.then_some("**"));
        text
    }

    /// Returns whether the path itself matches.
    pub fn matches(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.base) else { return false };
        match &self.rest {
            None => self.below || below.as_os_str().is_empty(),
            Some(rest) => {
                // A `*` matches no bytes too, but a name has some.
                let one = |path: &Path| !path.as_os_str().is_empty() && rest.whole.is_match(path);
                one(below) || (self.below && below.ancestors().skip(1).any(one))
            }
        }
    }

    /// Returns whether the path or a directory above it matches: what a wall over each match holds.
    pub fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|path| self.matches(path))
    }

    /// Returns the matchers of the names behind `**`, if that is the first special name and the only one that stands for
    /// several.
    pub(crate) fn names_behind_any(&self) -> Option<&[GlobSet]> {
        self.rest.as_ref().map(|rest| rest.behind.as_slice()).filter(|behind| !behind.is_empty())
    }

    /// Returns whether something below this directory could match; a walk need not enter those of which this is false.
    pub fn may_match_below(&self, directory: &Path) -> bool {
        if self.base.starts_with(directory) {
            return self.shape() != PatternShape::Path || self.base != directory;
        }
        let Ok(below) = directory.strip_prefix(&self.base) else { return false };
        match &self.rest {
            None => self.below,
            Some(rest) => (self.below && self.covers(directory)) || rest.may_match_below(below),
        }
    }
}

impl Rest {
    fn read(names: &[&OsStr]) -> Result<Self, PatternProblem> {
        let names: Option<Vec<&str>> = names.iter().map(|name| name.to_str()).collect();
        let names = names.ok_or(PatternProblem::NotUtf8)?;
        if names.iter().any(|name| name.contains('[') && !name.is_ascii()) {
            return Err(PatternProblem::ClassBeyondAscii);
        }
        let text = names.join("/");
        let whole = matcher(&text)?;
        let mut alone = Vec::new();
        let mut open = false;
        for name in &names {
            match matcher(name) {
                // A class cannot hold a separator, although the whole text may look as if one did.
                Err(PatternProblem::UnclosedClass) => return Err(PatternProblem::UnclosedClass),
                Ok(one) if !open && !name.contains("**") => alone.push(one),
                _ => open = true,
            }
        }
        if !open {
            alone.pop(); // below what the last name matches, nothing else does
        }
        let behind = match names.as_slice() {
            ["**", behind @ ..] if behind.iter().all(|name| !name.contains("**")) => {
                behind.iter().map(|name| matcher(name)).collect::<Result<_, _>>().unwrap_or_default()
            }
            _ => Vec::new(),
        };
        Ok(Self { text, whole, names: alone, open, behind })
    }

    fn may_match_below(&self, directory: &Path) -> bool {
        let mut depth = 0;
        for name in directory {
            match self.names.get(depth) {
                Some(one) if one.is_match(name) => depth += 1,
                Some(_) => return false,
                None => return self.open,
            }
        }
        true
    }
}

/// Whether a name is more than itself.
fn is_special(name: &OsStr) -> bool {
    let mut bytes = name.as_encoded_bytes().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            byte if SPECIAL.contains(&char::from(*byte)) => return true,
            _ => {}
        }
    }
    false
}

/// The name that a literal one stands for.
fn unescaped(name: &OsStr) -> Result<OsString, PatternProblem> {
    if !name.as_encoded_bytes().contains(&b'\\') {
        return Ok(name.to_owned());
    }
    let mut plain = String::new();
    let mut characters = name.to_str().ok_or(PatternProblem::NotUtf8)?.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => characters.next().ok_or(PatternProblem::DanglingEscape)?,
            other => other,
        });
    }
    Ok(plain.into())
}

/// The literal name that stands for this one; one that is not UTF-8 stays, and is refused if it holds something special.
fn escaped(name: &OsStr) -> OsString {
    let Some(text) = name.to_str() else { return name.to_owned() };
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if SPECIAL.contains(&character) || character == '\\' {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped.into()
}

fn matcher(text: &str) -> Result<GlobSet, PatternProblem> {
    let glob = GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(false)
        .empty_alternates(true)
        .build();
    // A set of one and not a matcher: making a matcher panics where the text makes too large an automaton.
    let set = glob.and_then(|glob| GlobSet::builder().add(glob).build());
    set.map_err(|error| match error.kind() {
        ErrorKind::UnclosedClass => PatternProblem::UnclosedClass,
        ErrorKind::UnclosedAlternates => PatternProblem::UnclosedAlternates,
        ErrorKind::UnopenedAlternates => PatternProblem::UnopenedAlternates,
        ErrorKind::DanglingEscape => PatternProblem::DanglingEscape,
        other => PatternProblem::Other(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text.as_ref(), Path::new("/w"), Some(Path::new("/home/u"))).unwrap()
    }

    fn problem(text: &str) -> PatternProblem {
        PathPattern::parse(text.as_ref(), Path::new("/w"), None).unwrap_err().problem
    }

    #[test]
    fn a_pattern_is_a_path_a_subtree_or_neither() {
        use PatternShape::{Path as One, Subtree, Wildcard};
        for (text, shape, prefix) in [
            ("/a/b", One, "/a/b"),
            ("/a//b/", One, "/a/b"),
            ("a", One, "/w/a"),
            ("./a", One, "/w/a"),
            (".", One, "/w"),
            ("~/.ssh", One, "/home/u/.ssh"),
            ("~", One, "/home/u"),
            (r"/a/\*x\[", One, "/a/*x["),
            ("/a/b/**", Subtree, "/a/b"),
            ("/a/**/**/", Subtree, "/a"),
            ("/**", Subtree, "/"),
            ("**", Subtree, "/w"),
            ("/a/*.pem", Wildcard, "/a"),
            ("/a/*/b/**", Wildcard, "/a"),
            ("**/.env", Wildcard, "/w"),
            ("~/.config/{a,b}/x", Wildcard, "/home/u/.config"),
            ("/a}b", One, "/a}b"),
        ] {
            let read = pattern(text);
            assert_eq!((read.shape(), read.literal_prefix()), (shape, Path::new(prefix)), "{text}");
            assert_eq!(read.text(), text);
        }
    }

    #[test]
    fn special_characters_do_not_cross_separators() {
        for (text, path, fits) in [
            ("/a/*.pem", "/a/x.pem", true),
            ("/a/*.pem", "/a/.pem", true),
            ("/a/*.pem", "/a/b/x.pem", false),
            ("/a/*", "/a", false),
            ("/a/?", "/a/x", true),
            ("/a?b", "/a/b", false),
            ("/a[!x]b", "/a/b", false),
            ("/a[+-9]b", "/a/b", false),
            ("/**/*.pem", "/x.pem", true),
            ("/**/*.pem", "/a/b/x.pem", true),
            ("*.pem", "/w/x.pem", true),
            ("*.pem", "/w/a/x.pem", false),
            ("*.pem", "/x.pem", false),
            ("/a/{b/c,d}/e", "/a/b/c/e", true),
            ("/a/{b/c,d}/e", "/a/d/e", true),
            ("/a/x{,.bak}", "/a/x", true),
            ("/a/**/b", "/a/b", true),
            ("/a/**/b", "/a/x/y/b", true),
            ("/a/b", "/a/b/c", false),
            ("/a/*/**", "/a/x", true),
            ("/a/*/**", "/a/x/y/z", true),
            ("/a/*/**", "/a", false),
            ("/a/x**y", "/a/x/y", false),
            ("/A/*", "/a/x", false),
            ("/a/*", "/a/x\ny", true),
        ] {
            assert_eq!(pattern(text).matches(Path::new(path)), fits, "{text} {path}");
        }
    }

    #[test]
    fn what_lies_below_a_match_is_covered() {
        assert!(pattern("/a").covers(Path::new("/a/b/c")));
        assert!(pattern("/a/*.d").covers(Path::new("/a/x.d/y")));
        assert!(!pattern("/a/*.d").covers(Path::new("/a/x/y")));
        assert!(!pattern("/a/b").covers(Path::new("/a")));
    }

    #[test]
    fn a_walk_enters_only_what_may_match() {
        for (text, directory, enter) in [
            ("/a/*.pem", "/a", true),
            ("/a/*.pem", "/", true),
            ("/a/*.pem", "/a/b", false),
            ("/a/*.pem", "/b", false),
            ("/a/*/k", "/a/b", true),
            ("/a/*/k", "/a/b/k", false),
            ("/a/x*/**/k", "/a/x1/y/z", true),
            ("/a/x*/**/k", "/a/y", false),
            ("/a/{b,c}/k", "/a/d", false),
            ("/a/{b/c,d}/k", "/a/b", true),
            ("/a/b", "/a", true),
            ("/a/b", "/a/b", false),
            ("/a/**", "/a/b", true),
        ] {
            assert_eq!(pattern(text).may_match_below(Path::new(directory)), enter, "{text} {directory}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_match_as_bytes() {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = Path::new(OsStr::from_bytes(b"/a/\xff.pem"));
        assert!(pattern("/a/*.pem").matches(odd) && pattern("/a/?.pem").matches(odd));
        let literal = PathPattern::parse(OsStr::from_bytes(b"/a/\xff/*"), Path::new("/"), None).unwrap();
        assert!(literal.matches(Path::new(OsStr::from_bytes(b"/a/\xff/x"))));
        let refused = PathPattern::parse(OsStr::from_bytes(b"/a/\xff*"), Path::new("/"), None).unwrap_err();
        assert_eq!(refused.problem, PatternProblem::NotUtf8);
        assert_eq!(refused.to_string(), r#"pattern "/a/\xff*" has special characters in a name that is not UTF-8"#);
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_name() {
        for (text, expected) in [
            ("", PatternProblem::Empty),
            ("/a\0", PatternProblem::NulByte),
            ("/a/../b", PatternProblem::Parent),
            ("/a/*/..", PatternProblem::Parent),
            ("~/x", PatternProblem::NoHome),
            ("~root/x", PatternProblem::OtherHome),
            ("/a[b", PatternProblem::UnclosedClass),
            ("/a[b/c]d", PatternProblem::UnclosedClass),
            ("/[é]", PatternProblem::ClassBeyondAscii),
            ("/{a", PatternProblem::UnclosedAlternates),
            ("/*}", PatternProblem::UnopenedAlternates),
            ("/*\\", PatternProblem::DanglingEscape),
            ("/a\\", PatternProblem::DanglingEscape),
        ] {
            assert_eq!(problem(text), expected, "{text:?}");
        }
        assert_eq!(problem(&"a".repeat(MAX_PATTERN_BYTES + 1)), PatternProblem::TooLong);
        assert!(matches!(problem("/[b-a]"), PatternProblem::Other(_)));
        assert!(matches!(problem(&format!("/{}", "{".repeat(200))), PatternProblem::Other(_)));
        let error: SandboxError = PathPattern::parse("/{a".as_ref(), Path::new("/"), None).unwrap_err().into();
        assert_eq!(error.code().as_str(), "SANDBOX_INVALID_POLICY");
        assert!(error.to_string().contains(r#""/{a""#), "{error}");
    }

    #[test]
    fn the_longest_patterns_are_read_without_a_panic() {
        for unit in ["?", "*a", "{a,b}", "[!a-z]", "/**/a", "/*", "{a*,[b-d]?}"] {
            let text = unit.repeat(MAX_PATTERN_BYTES / unit.len());
            let _ = PathPattern::parse(text.as_ref(), Path::new("/w"), None).map(|it| it.matches(Path::new("/w/a/b")));
        }
    }

    #[test]
    fn a_root_and_a_home_are_literal() {
        let read = PathPattern::parse("*.x".as_ref(), Path::new("/w/[a]*"), None).unwrap();
        assert!(read.matches(Path::new("/w/[a]*/1.x")) && !read.matches(Path::new("/w/ab/1.x")));
        assert_eq!(read.absolute(), Path::new(r"/w/\[a]\*/*.x"));
    }

    proptest! {
        /// Whatever matches is found by a walk that enters only what may match, and means the same when absolute.
        #[test]
        fn a_walk_misses_nothing(
            text in r"(/|~/)?([abc*?{},/\[\]\\]|\*\*/|\{a,b\}|\{a/b,c\}|/){1,12}",
            path in "/(w|home/u)?(/[abc]{1,2}){0,5}",
        ) {
            let (path, root, home) = (Path::new(&path), Path::new("/w"), Some(Path::new("/home/u")));
            let Ok(read) = PathPattern::parse(text.as_ref(), root, home) else { return Ok(()) };
            let again = PathPattern::parse(read.absolute().as_os_str(), Path::new("/else"), None).unwrap();
            prop_assert_eq!(again.shape(), read.shape());
            prop_assert_eq!(again.matches(path), read.matches(path));
            if read.matches(path) {
                prop_assert!(path.starts_with(read.literal_prefix()));
                for above in path.ancestors().skip(1) {
                    prop_assert!(read.may_match_below(above), "{:?}", above);
                }
            }
        }
    }
}
