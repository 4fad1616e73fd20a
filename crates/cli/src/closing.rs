//! What a call closes beyond its mode, from words: network, sockets, reads and variables, and what is closed without
//! being asked for.

use crate::arguments::RestrictionOptions;
use crate::surroundings::{Surroundings, physical};
use crate::{secrets, socket_names};
use pinfold_policy::quote::quote;
use pinfold_policy::{
    ExecutionPolicy, Network, PathPattern, PatternShape, Protect, Restrictions, SandboxError, SandboxMode, Sockets,
    UnknownWord, Variables,
};
use pinfold_providers::{CallOptions, Insistence};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What is closed, and how much the caller insists on it.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// What is closed.
    pub(crate) restrictions: Restrictions,
    /// Whether sockets must be closed, or may stay open where they cannot be.
    pub(crate) sockets: Insistence,
    /// The same for denied reads.
    pub(crate) reads: Insistence,
    /// Sentences for the report.
    pub(crate) notes: Vec<String>,
}

/// Sockets of name services. Without them `whoami` and `ssh` do not know the user on some hosts, and they do nothing but
/// look names up; so they stay reachable unless somebody says that sockets are to be closed.
const NAME_SERVICES: [&str; 4] =
    ["/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/systemd/userdb", "/var/lib/sss/pipes/nss"];

impl Closing {
    /// Reads what is closed beyond the mode. Sockets and secrets in the home directory are closed by default, where they
    /// can be. `used` are the places in which the command works.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for words that mean nothing or contradict each other.
    pub(crate) fn new(
        options: &RestrictionOptions,
        policy: &ExecutionPolicy,
        cwd: Option<&Path>,
        around: &Surroundings,
    ) -> Result<Self, SandboxError> {
        let confined = policy.mode != SandboxMode::DangerFullAccess;
        let network = options.network.as_deref().map_or(Ok(Network::Open), str::parse).map_err(unknown)?;
        let variables = options.env.as_deref().map_or(Ok(Variables::Inherit), str::parse).map_err(unknown)?;
        let asked: Option<Sockets> = options.sockets.as_deref().map(str::parse).transpose().map_err(unknown)?;
        if !confined {
            let closes = [
                ("--network", network != Network::Open),
                ("--deny-read", !options.deny_read.is_empty()),
                ("--deny-secrets", options.deny_secrets),
                ("--sockets", asked == Some(Sockets::Closed)),
            ];
            if let Some((option, _)) = closes.iter().find(|(_, closes)| *closes) {
                let mode = policy.mode;
                return Err(invalid(format!("{option} cannot close anything under {mode}: nothing is confined there")));
            }
        }
        let sockets = asked.unwrap_or(if confined { Sockets::Closed } else { Sockets::Open });
        let mut allowed_sockets = Vec::new();
        for word in &options.allow_socket {
            allowed_sockets.extend(socket_names::read(word, around)?);
        }
        let restrictions = Restrictions { network, sockets, variables, ..Restrictions::default() };
        let mut closing = Self { restrictions, ..Self::default() };
        for word in &options.deny_read {
            closing.deny(word, around)?;
        }
        closing.restrictions.protect = protect(&options.protect, around)?;
        let used = [policy.workspace_root.as_path()].into_iter().chain(cwd).chain(around.current.as_deref().ok());
        let used: Vec<PathBuf> = used.chain(policy.writable_roots()).map(physical).collect();
        closing.secrets(options, confined, &used, &allowed_sockets, around)?;
        if asked.is_none() && confined {
            allowed_sockets.extend(NAME_SERVICES.iter().map(PathBuf::from).filter(|path| path.exists()));
        }
        let name = |name: &OsString| {
            let problem = || invalid(format!("--keep-env {} is not UTF-8", quote(name)));
            name.to_str().map(str::to_owned).ok_or_else(problem)
        };
        closing.restrictions.kept_variables = options.keep_env.iter().map(name).collect::<Result<_, _>>()?;
        closing.restrictions.allowed_sockets = allowed_sockets;
        check_lists(options, &closing.restrictions)?;
        closing.restrictions.validate()?;
        let insistence = |insists| if insists { Insistence::Required } else { Insistence::WherePossible };
        closing.sockets = insistence(asked.is_some());
        closing.reads = insistence(options.deny_secrets || !options.deny_read.is_empty());
        Ok(closing)
    }

    /// Returns the call's options for the provider.
    pub(crate) fn options(self) -> CallOptions {
        let Self { restrictions, sockets, reads, notes } = self;
        CallOptions { restrictions, sockets, reads, notes, ..CallOptions::default() }
    }

    /// Reads one `--deny-read`: a path or a pattern. What exists under the word as it is spelled is meant in any case.
    fn deny(&mut self, word: &OsStr, around: &Surroundings) -> Result<(), SandboxError> {
        let literal = around.absolute("--deny-read", Path::new(word))?;
        let exists = literal.symlink_metadata().is_ok();
        let (base, rest) = around.base_of(Path::new(word))?;
        let pattern = match PathPattern::parse(rest.as_os_str(), base, around.home.as_deref()) {
            Ok(pattern) => pattern,
            Err(_) if exists => {
                self.restrictions.denied_reads.push(literal);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let restrictions = &mut self.restrictions;
        match pattern.shape() {
            PatternShape::Path | PatternShape::Subtree => {
                restrictions.denied_reads.push(pattern.literal_prefix().to_owned());
            }
            PatternShape::Wildcard => restrictions.denied_read_patterns.push(pattern.absolute()),
        }
        if exists && pattern.literal_prefix() != literal {
            restrictions.denied_reads.push(literal);
        }
        Ok(())
    }

    /// Adds the secrets of the home directory, but for what is allowed.
    fn secrets(
        &mut self,
        options: &RestrictionOptions,
        confined: bool,
        used: &[PathBuf],
        sockets: &[PathBuf],
        around: &Surroundings,
    ) -> Result<(), SandboxError> {
        if options.deny_secrets && options.allow_secrets {
            return Err(invalid("--deny-secrets and --allow-secrets contradict each other".to_owned()));
        }
        let mut allowed = Vec::new();
        for word in &options.allow_read {
            allowed.push(allowed_path(word, around)?);
        }
        let named = self.restrictions.denied_reads.clone();
        if let Some(path) = allowed.iter().find(|path| named.iter().any(|denied| denied.starts_with(path))) {
            return Err(invalid(format!("{} is both denied and allowed to be read", quote(path))));
        }
        if options.deny_secrets || (confined && !options.allow_secrets) {
            match &around.home {
                Some(home) => self.deny_secrets(home, options.deny_secrets, used, &allowed, sockets),
                None if options.deny_secrets => {
                    return Err(invalid("--deny-secrets needs a home directory, and none is known".to_owned()));
                }
                None => {}
            }
        }
        let below = |path: &PathBuf| self.restrictions.denied_reads.iter().any(|denied| path.starts_with(denied));
        let mut kept: Vec<PathBuf> = allowed.into_iter().filter(below).collect();
        self.restrictions.allowed_reads.append(&mut kept);
        Ok(())
    }

    fn deny_secrets(&mut self, home: &Path, insists: bool, used: &[PathBuf], allowed: &[PathBuf], sockets: &[PathBuf]) {
        // What the sessions of this user were asked, allowed and ran is nobody's to read either.
        let sessions = pinfold_session::Store::place(Some(home)).ok().filter(|place| place.is_dir());
        let sessions = sessions.map(|place| secrets::Place { place, except: Vec::new() });
        for secret in secrets::there(home).into_iter().chain(sessions) {
            let real = physical(&secret.place);
            if allowed.iter().any(|path| secret.place.starts_with(path) || real.starts_with(physical(path))) {
                continue;
            }
            if !insists && used.iter().any(|place| place.starts_with(&real)) {
                let note = format!("The command works in {}, so it is not closed for reading.", quote(&secret.place));
                self.notes.push(note);
                continue;
            }
            // An allowed socket in such a place has to stay visible.
            let sockets = sockets.iter().filter_map(|socket| {
                let below = physical(socket).strip_prefix(&real).ok()?.to_owned();
                (!below.as_os_str().is_empty()).then(|| secret.place.join(below))
            });
            self.restrictions.allowed_reads.extend(secret.except.iter().cloned().chain(sockets));
            self.restrictions.denied_reads.push(secret.place);
        }
        let note = "Secrets of the home directory are closed as a list, as far as they exist when the command starts.";
        self.notes.push(note.to_owned());
    }
}

/// Reads one `--allow-read`.
fn allowed_path(word: &OsStr, around: &Surroundings) -> Result<PathBuf, SandboxError> {
    let literal = around.absolute("--allow-read", Path::new(word))?;
    if literal.symlink_metadata().is_ok() {
        return Ok(literal);
    }
    let (base, rest) = around.base_of(Path::new(word))?;
    let pattern = PathPattern::parse(rest.as_os_str(), base, around.home.as_deref())?;
    match pattern.shape() {
        PatternShape::Wildcard => Err(invalid(format!("--allow-read {} is a pattern; name paths", quote(word)))),
        _ => Ok(pattern.literal_prefix().to_owned()),
    }
}

/// Refuses options that have no use beside others, in their own words.
fn check_lists(options: &RestrictionOptions, restrictions: &Restrictions) -> Result<(), SandboxError> {
    if !options.allow_socket.is_empty() && restrictions.sockets == Sockets::Open {
        return Err(invalid("--allow-socket has no use here: no socket is closed (--sockets closed)".to_owned()));
    }
    if !options.keep_env.is_empty() && restrictions.variables == Variables::Inherit {
        return Err(invalid("--keep-env has no use here: no variable is removed (--env scrub)".to_owned()));
    }
    Ok(())
}

fn unknown(word: UnknownWord) -> SandboxError {
    invalid(word.to_string())
}

fn invalid(detail: String) -> SandboxError {
    SandboxError::InvalidPolicy { detail }
}
/// Reads every `--protect`. A pattern is relative to the current directory, as a path would be.
fn protect(words: &[OsString], around: &Surroundings) -> Result<Protect, SandboxError> {
    let mut protect = Protect::default();
    for word in words {
        match word.to_str() {
            Some("default") => protect.default_names = true,
            Some("none") if words.len() > 1 => {
                return Err(invalid("--protect none contradicts the other --protect".to_owned()));
            }
            Some("none") => {}
            text => {
                let (base, rest) = around.base_of(Path::new(word))?;
                if let Some((text, meant)) = text.and_then(|text| Some((text, misspelled(text)?)))
                    && base.join(text).symlink_metadata().is_err()
                {
                    let detail = format!(
                        "--protect {} is neither default nor none, and nothing here has this name: write {meant}, or \
                         ./{text} for a name",
                        quote(text)
                    );
                    return Err(invalid(detail));
                }
                let pattern = PathPattern::parse(rest.as_os_str(), base, around.home.as_deref())?;
                protect.patterns.push(pattern.absolute());
            }
        }
    }
    Ok(protect)
}

/// The preset that a word looks like, if it is a plain name that is nearly one.
fn misspelled(word: &str) -> Option<&'static str> {
    let plain = word.chars().all(|character| character.is_ascii_alphanumeric() || character == '-');
    ["default", "none"].into_iter().find(|preset| plain && distance(&word.to_ascii_lowercase(), preset) <= 2)
}

/// How many letters have to be changed, added or left out to make one word of the other (Levenshtein's distance).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], index + 1);
        for (column, against) in other.bytes().enumerate() {
            let change = corner + usize::from(letter != against);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_recognized_by_up_to_two_letters() {
        for (one, other, letters) in [("", "", 0), ("", "ab", 2), ("none", "none", 0), ("kitten", "sitting", 3)] {
            assert_eq!((distance(one, other), distance(other, one)), (letters, letters), "{one} {other}");
        }
        for (word, meant) in [("defualt", "default"), ("Default", "default"), ("defaults", "default"), ("non", "none")]
        {
            assert_eq!(misspelled(word), Some(meant), "{word}");
        }
        for word in ["Makefile", ".git", "./defualt", "de*ault", "src", "nothing", "d\u{e9}fault"] {
            assert_eq!(misspelled(word), None, "{word}");
        }
    }
}
