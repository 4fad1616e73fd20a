//! What is known of a mechanism on this host: probed, remembered, and told.

use super::*;

impl LocalProvider {
    pub(super) fn verdict(
        &self,
        backend: Backend,
        mode: ConfinedMode,
        writable: &[PinnedRoot],
    ) -> Result<Usable, Refusal> {
        self.verdicts.get((backend, mode), || {
            let Some(files) = self.verdict_files() else { return self.probe(backend, mode, writable) };
            let programs = self.host.programs(backend);
            if let Some(usable) = files.load(backend, mode, &programs) {
                return Ok(usable);
            }
            let usable = self.probe(backend, mode, writable)?;
            files.store(backend, mode, &programs, &usable);
            Ok(usable)
        })
    }

    /// Where verdicts outlive this provider, if that was asked for.
    fn verdict_files(&self) -> Option<VerdictFiles> {
        if !self.keep_verdicts {
            return None;
        }
        VerdictFiles::below(self.runtime().ok()?.root()).ok()
    }

    /// Forgets what is known of a mechanism, here and on disk.
    pub(super) fn forget(&self, backend: Backend) {
        self.verdicts.forget(backend);
        self.verdict_files().iter().for_each(|files| files.forget(backend));
    }

    fn probe(&self, backend: Backend, mode: ConfinedMode, writable: &[PinnedRoot]) -> Result<Usable, Refusal> {
        let deadline = Instant::now() + self.host.probe_timeout;
        let runtime = self.runtime().map_err(|error| chain::refusal_of(&error))?;
        let failed = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        let covered = |path: &Path| {
            self.host.shared_temps.iter().any(|temp| path.starts_with(temp)) || path.starts_with("/dev/shm")
        };
        let (directory, uncovered) = if covered(runtime.root()) {
            match canary_place(writable).filter(|place| !covered(place)) {
                Some(place) => (tempfile::Builder::new().prefix("canary-").tempdir_in(place).map_err(failed)?, true),
                None => (runtime.call_directory().map_err(failed)?, false),
            }
        } else {
            (runtime.call_directory().map_err(failed)?, true)
        };
        let canary = Canary::lay_out(directory).map_err(failed)?;
        let writes = mode == ConfinedMode::WorkspaceWrite;
        let temp_directory = runtime.call_directory().map_err(failed)?;
        let temp = match backend {
            Backend::Landlock if writes => Some(pin_temp(temp_directory.path()).map_err(failed)?),
            _ => None,
        };
        let roots: Vec<PinnedRoot> = if writes { vec![canary.granted.clone()] } else { Vec::new() };
        chain::probe(&Trial {
            host: &self.host,
            backend,
            canary: &canary,
            uncovered,
            request: Request {
                mode,
                roots,
                between: Vec::new(),
                closed: Closed::default(),
                landlock_abi: 0,
                shared_temps: self.host.shared_temps.clone(),
                temp,
                cwd: None,
                status: StatusTo::Nowhere,
                supervise: true,
                terminal: false,
                set: Vec::new(),
            },
            deadline,
        })
    }

    pub(super) fn finding(&self, backend: Backend, mode: ConfinedMode) -> Finding {
        self.forget(backend);
        let mut facts = match backend {
            Backend::Namespace => linux_namespace::probe::facts(),
            Backend::Bwrap => linux_bwrap::probe::facts(&self.host),
            Backend::Landlock => linux_landlock::probe::facts(),
            Backend::Custom | Backend::Unconfined => BTreeMap::new(),
        };
        if let Ok(launcher) = &self.host.launcher {
            facts.insert("launcher".to_owned(), pinfold_policy::quote::readable(launcher));
        }
        let (usable, refusal) = match self.verdict(backend, mode, &[]) {
            Ok(usable) => (Some(usable), None),
            Err(refusal) => (None, Some(refusal)),
        };
        if let Some(usable) = &usable {
            facts.insert("landlock_abi".to_owned(), usable.landlock_abi.to_string());
        }
        let report = usable.as_ref().and_then(|usable| self.canary_report(backend, mode, usable));
        let (reason, remedy) = match refusal {
            Some(refusal) => (Some(refusal.reason), Some(refusal.remedy).filter(|remedy| !remedy.is_empty())),
            None => (None, None),
        };
        Finding { backend, usable: usable.is_some(), reason, remedy, report, facts }
    }
}

/// Where a canary is laid out when the runtime directory is below a shared temp directory.
fn canary_place(roots: &[PinnedRoot]) -> Option<PathBuf> {
    canary_place_in(Path::new(&std::env::var_os("HOME")?), roots)
}

/// SECURITY: a command that can write here, or that could when an earlier call was its own, decides what a probe sees,
/// and where it makes its directories.
fn canary_place_in(home: &Path, roots: &[PinnedRoot]) -> Option<PathBuf> {
    let place = home.join(".local/state/pinfold");
    // Not where a link leads, and not `/nonexistent`.
    if home.canonicalize().ok()? != home
        || roots.iter().any(|root| place.starts_with(&root.path) || root.path.starts_with(&place))
    {
        return None;
    }
    // Level by level, so that nothing is made behind a link.
    let user = rustix::process::geteuid().as_raw();
    let mut directory = home.to_owned();
    for name in ["", ".local", "state", "pinfold"] {
        if !name.is_empty() {
            directory.push(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return None,
                _ => {}
            }
        }
        let metadata = std::fs::symlink_metadata(&directory).ok()?;
        if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
            return None;
        }
    }
    (place.canonicalize().ok()? == place).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_canary_is_laid_out_only_where_no_command_had_a_hand() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (home, out) = (base.join("home"), base.join("out"));
        let make = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
        make(&home);
        make(&out);
        let place = home.join(".local/state/pinfold");
        let outside = [pin_physical(&out).unwrap()];
        let inside = [pin_physical(&home).unwrap()];
        assert_eq!(canary_place_in(&home, &inside), None);
        assert!(!home.join(".local").exists());
        assert_eq!(canary_place_in(&home, &outside), Some(place.clone()));
        make(&place.join("deep"));
        assert_eq!(canary_place_in(&home, &[pin_physical(&place.join("deep")).unwrap()]), None);
        for mode in [0o720, 0o702] {
            std::fs::set_permissions(home.join(".local"), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(canary_place_in(&home, &outside), None);
        }
        std::fs::remove_dir_all(home.join(".local")).unwrap();
        make(&home.join(".local"));
        symlink(&out, home.join(".local/state")).unwrap();
        assert_eq!(canary_place_in(&home, &outside), None);
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
        symlink(&home, base.join("link")).unwrap();
        assert_eq!(canary_place_in(&base.join("link"), &[]), None);
        assert_eq!(canary_place_in(Path::new("relative"), &[]), None);
    }
}
