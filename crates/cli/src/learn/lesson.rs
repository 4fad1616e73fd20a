//! From refusals to directories: which one an effect needs, and why some are not proposed.

use crate::surroundings::{Surroundings, physical};
use pinfold_policy::restrictions::SECRETS_IN_HOME;
use pinfold_policy::{Denial, DenialEvidence, Effect, ProtectedNames, quote::quote};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, accessat, statvfs};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What there is to know for a lesson.
pub(super) struct Teacher<'a> {
    pub(super) around: &'a Surroundings,
    /// What the command could write, physical.
    pub(super) roots: Vec<PathBuf>,
    /// What it could not read.
    pub(super) denied: &'a [PathBuf],
    /// Whether names that tools outside obey are kept aside.
    pub(super) protects: bool,
    /// Says why a directory can be no root of ours.
    pub(super) refused: &'a dyn Fn(&Path) -> Option<String>,
}

/// What follows from the refusals of one run.
#[derive(Debug, Default)]
pub(super) struct Lesson {
    /// Directories, each with an effect that needs it.
    pub(super) learnt: Vec<(PathBuf, Denial)>,
    pub(super) not_learnt: Vec<NotLearnt>,
}

/// An effect for which no directory is proposed.
#[derive(Debug, Serialize)]
pub(super) struct NotLearnt {
    pub(super) reason: Reason,
    /// A sentence for a person.
    pub(super) detail: String,
    pub(super) denial: Denial,
}

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    /// Its path is not known.
    NoPath,
    /// A tool outside obeys it.
    Protected,
    /// Keys, tokens, passwords.
    Secret,
    /// It is closed for reading.
    DeniedRead,
    /// A directory of the system, the home directory, or one that holds it.
    Unfit,
    /// A temp directory that others share.
    Temp,
    /// Nothing is there outside.
    Absent,
    /// Its own permissions refuse it, or what root has lost.
    Permissions,
    /// Its file system is read-only.
    ReadOnlyFileSystem,
    /// Between two writable directories, which are two file systems inside.
    TwoRoots,
}

type Judged = Result<(), (Reason, String)>;

impl Teacher<'_> {
    /// Draws the lesson of a run.
    pub(super) fn lesson(&self, denials: &[Denial]) -> Lesson {
        let mut lesson = Lesson::default();
        let mut denials = denials.iter().peekable();
        while let Some(denial) = denials.next() {
            // SECURITY: what was read from text may be forged.
            if denial.evidence == DenialEvidence::Inferred {
                continue;
            }
            let partner = denials.next_if(|next| self.is_move(denial, next));
            let found = self.directory(denial, partner);
            match found.and_then(|directory| self.judge(&directory, denial).map(|()| directory)) {
                Ok(directory) => lesson.learnt.push((directory, denial.clone())),
                Err((reason, detail)) => lesson.not_learnt.push(NotLearnt { reason, detail, denial: denial.clone() }),
            }
        }
        lesson
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Whether two refusals are the two names of one call between two writable directories.
    fn is_move(&self, one: &Denial, other: &Denial) -> bool {
        let inside = |denial: &Denial| {
            denial.errno.as_deref() == Some("EXDEV") && denial.path.as_ref().is_some_and(|path| self.is_writable(path))
        };
        inside(one) && inside(other) && one.operation == other.operation && one.process == other.process
    }

    /// The directory that an effect needs.
    fn directory(&self, denial: &Denial, partner: Option<&Denial>) -> Result<PathBuf, (Reason, String)> {
        let (Some(path), Some(operation)) = (&denial.path, &denial.operation) else {
            let detail = match &denial.text {
                Some(text) => text.clone(),
                None => "its path is too long to be told".to_owned(),
            };
            return Err((Reason::NoPath, detail));
        };
        if let Some(rule) = &denial.rule {
            return Err((Reason::Protected, format!("a protected name ({rule}); see --protect")));
        }
        if let Some(other) = partner.and_then(|partner| partner.path.as_ref()) {
            return Ok(common(path, other));
        }
        if self.is_writable(path) {
            return Err(match denial.errno.as_deref() {
                Some("EROFS") => (Reason::ReadOnlyFileSystem, "it lies on a mount that is read-only".to_owned()),
                Some("EXDEV") => {
                    (Reason::TwoRoots, "two writable directories are two file systems for the command".to_owned())
                }
                _ => {
                    (Reason::Permissions, "its directory is writable: the permissions of the file refuse it".to_owned())
                }
            });
        }
        let about_itself = changes_metadata(operation) || operation == "open";
        if about_itself && path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(path.clone());
        }
        Ok(path.parent().unwrap_or(path).to_owned())
    }

    /// Says why a directory is not proposed.
    fn judge(&self, directory: &Path, denial: &Denial) -> Judged {
        let path = denial.path.as_deref().unwrap_or(directory);
        let operation = denial.operation.as_deref().unwrap_or_default();
        let holds_secrets = |place: PathBuf| Err((Reason::Secret, format!("{} holds secrets", quote(place))));
        if let Some(place) = self.secrets().find(|place| path.starts_with(place)) {
            return holds_secrets(place);
        }
        if let Some(place) = self.denied.iter().find(|place| path.starts_with(place)) {
            return Err((Reason::DeniedRead, format!("{} is closed for reading", quote(place))));
        }
        if shared_temps().any(|temp| directory == temp) {
            let detail =
                "under workspace-write a command has temp directories of its own: /tmp, or $TMPDIR under Landlock";
            return Err((Reason::Temp, detail.to_owned()));
        }
        if let Some(why) = self.around.unfit(directory) {
            return Err((Reason::Unfit, format!("{} {why}", quote(directory))));
        }
        if !directory.is_dir() {
            return Err((Reason::Absent, format!("{} is no directory outside", quote(directory))));
        }
        if let Some(place) = self.secrets().find(|place| place.starts_with(directory) && place.exists()) {
            return holds_secrets(place);
        }
        if let Some(place) = self.denied.iter().find(|place| place.starts_with(directory)) {
            return Err((Reason::DeniedRead, format!("{} lies in it and is closed for reading", quote(place))));
        }
        if let Some(rule) = self.protected(directory, path) {
            return Err((Reason::Protected, format!("tools outside obey it ({rule}); see --protect")));
        }
        if statvfs(directory).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)) {
            return Err((Reason::ReadOnlyFileSystem, "its file system is read-only".to_owned()));
        }
        let forbidden = |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_err();
        let content = matches!(operation, "open" | "truncate") && path.is_file();
        if !changes_metadata(operation) && forbidden(if content { path } else { directory }) {
            return Err((Reason::Permissions, "its permissions refuse it to this user".to_owned()));
        }
        match (self.refused)(directory) {
            Some(why) => Err((Reason::Unfit, why)),
            None => Ok(()),
        }
    }

    fn secrets(&self) -> impl Iterator<Item = PathBuf> {
        let places =
            self.around.home.iter().flat_map(|home| SECRETS_IN_HOME.iter().map(|secret| home.join(secret.place)));
        // Homes are full of links to where such files are kept.
        places.flat_map(|place| [physical(&place), place])
    }

    /// The reason for which a name would be protected if its directory were a root.
    fn protected(&self, directory: &Path, path: &Path) -> Option<pinfold_policy::ProtectionRule> {
        if !self.protects {
            return None;
        }
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        let effect = if exists(path) { Effect::Alter } else { Effect::Create };
        let names = ProtectedNames::below([directory.to_owned()]).with_default_names(self.around.home.as_deref());
        names.rule_on(path, effect, &exists)
    }
}

fn changes_metadata(operation: &str) -> bool {
    matches!(operation, "chmod" | "chown" | "utime" | "setxattr" | "removexattr" | "setattr")
}

fn shared_temps() -> impl Iterator<Item = PathBuf> {
    ["/tmp", "/var/tmp", "/dev/shm"].into_iter().map(|temp| physical(Path::new(temp)))
}

/// The narrowest directory that holds two files.
fn common(one: &Path, other: &Path) -> PathBuf {
    let (one, other) = (one.parent().unwrap_or(one), other.parent().unwrap_or(other));
    one.ancestors().find(|above| other.starts_with(above)).unwrap_or(Path::new("/")).to_owned()
}

/// Those that lie in no other one.
pub(super) fn outermost(directories: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = directories.into_iter().collect();
    all.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for directory in all {
        if !kept.iter().any(|above| directory.starts_with(above)) {
            kept.push(directory);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(operation: &str, path: &Path, errno: &str) -> Denial {
        Denial {
            path: Some(path.to_owned()),
            operation: Some(operation.to_owned()),
            errno: Some(errno.to_owned()),
            ..Denial::known(DenialEvidence::Kernel)
        }
    }

    fn lesson_of(home: &Path, roots: &[PathBuf], denials: &[Denial]) -> Lesson {
        let around = Surroundings {
            current: Ok("/".into()),
            home: Some(home.to_owned()),
            named_home: None,
            own: vec![home.join("own/bin")],
        };
        let denied = [home.join("closed")];
        let refused = |path: &Path| path.ends_with("state").then(|| "it is ours".to_owned());
        let teacher =
            Teacher { around: &around, roots: roots.to_vec(), denied: &denied, protects: true, refused: &refused };
        teacher.lesson(denials)
    }

    fn laid_out() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().canonicalize().unwrap().join("home");
        for name in ["o/a", "o/b", ".ssh", ".config/gh", "closed", "own/bin", "state", "r/.git/objects", "p"] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        for name in ["r/.git/HEAD", "r/.git/config", "o/file"] {
            std::fs::write(home.join(name), "").unwrap();
        }
        (directory, home)
    }

    #[test]
    fn each_effect_needs_its_directory() {
        let (_held, home) = laid_out();
        let denials = [
            refused("open", &home.join("o/new"), "EROFS"),
            refused("mkdir", &home.join("o/a/x"), "EROFS"),
            refused("chmod", &home.join("o/b"), "EPERM"),
            refused("chmod", &home.join("o/file"), "EPERM"),
            refused("unlink", &home.join("r/.git/index.lock"), "EACCES"),
        ];
        let lesson = lesson_of(&home, &[], &denials);
        assert!(lesson.not_learnt.is_empty(), "{:?}", lesson.not_learnt);
        let got: Vec<_> = lesson.learnt.iter().map(|(directory, _)| directory.strip_prefix(&home).unwrap()).collect();
        assert_eq!(got, ["o", "o/a", "o/b", "o", "r/.git"].map(Path::new));
        let kept = outermost(lesson.learnt.into_iter().map(|(directory, _)| directory));
        assert_eq!(kept, [home.join("o"), home.join("r/.git")]);
    }

    #[test]
    fn what_nobody_should_open_is_told_apart() {
        let (_held, home) = laid_out();
        let tmp = std::fs::canonicalize("/tmp").unwrap();
        for (path, reason) in [
            (PathBuf::from("/x"), Reason::Unfit),
            ("/etc/x".into(), Reason::Unfit),
            ("/usr/local/x".into(), Reason::Unfit),
            (home.join("x"), Reason::Unfit),
            (home.parent().unwrap().join("x"), Reason::Unfit),
            (home.join("own/x"), Reason::Unfit),
            (home.join("state/x"), Reason::Unfit),
            (home.join(".ssh/known_hosts"), Reason::Secret),
            (home.join(".config/x"), Reason::Secret),
            (home.join(".netrc"), Reason::Secret),
            (home.join("closed/x"), Reason::DeniedRead),
            (home.join("none/x"), Reason::Absent),
            (tmp.join("x"), Reason::Temp),
            (home.join("r/.git/hooks/pre-commit"), Reason::Absent),
            (home.join("r/.git/config"), Reason::Protected),
            (home.join("p/.envrc"), Reason::Protected),
            (home.join("p/.git"), Reason::Protected),
        ] {
            let lesson = lesson_of(&home, &[], &[refused("open", &path, "EROFS")]);
            let got: Vec<_> = lesson.not_learnt.iter().map(|not| not.reason).collect();
            assert_eq!((got.as_slice(), lesson.learnt.len()), (&[reason][..], 0), "{path:?}");
        }
    }

    #[test]
    fn what_has_no_path_a_rule_or_only_a_text_opens_nothing() {
        let (_held, home) = laid_out();
        let cut = Denial { text: Some("further".to_owned()), ..Denial::known(DenialEvidence::Broker) };
        let ruled = Denial { rule: Some("pattern".to_owned()), ..refused("open", &home.join("o/x"), "EPERM") };
        let forged = Denial { path: Some(home.join("o/x")), ..Denial::inferred("touch: /o/x: Read-only file system") };
        let lesson = lesson_of(&home, &[], &[cut, ruled, forged]);
        let got: Vec<_> = lesson.not_learnt.iter().map(|not| not.reason).collect();
        assert_eq!((got.as_slice(), lesson.learnt.len()), (&[Reason::NoPath, Reason::Protected][..], 0));
    }

    #[test]
    fn a_move_between_two_roots_needs_what_holds_both() {
        let (_held, home) = laid_out();
        let roots = [home.join("o/a"), home.join("o/b")];
        let pair = [refused("rename", &home.join("o/a/x"), "EXDEV"), refused("rename", &home.join("o/b/x"), "EXDEV")];
        let lesson = lesson_of(&home, &roots, &pair);
        assert_eq!((lesson.learnt.len(), lesson.learnt[0].0.clone()), (1, home.join("o")));
        let lesson = lesson_of(&home, &roots, &[refused("open", &home.join("o/a/x"), "EACCES")]);
        assert_eq!(lesson.not_learnt[0].reason, Reason::Permissions);
    }
}
