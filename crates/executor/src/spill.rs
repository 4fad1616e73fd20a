//! Files that hold the whole of an output that was too long to be kept.
//!
//! They are private (directory 0700, file 0600), they go when their session ends, and a confined command can read them under
//! the path that a result names: so they lie where no backend puts a private temp directory or a cover, and where no policy
//! lets a command write.

use pinfold_providers::ProcessDirectory;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The file of one stream.
#[derive(Debug)]
pub(crate) enum Spill {
    /// Nothing has overflowed yet.
    None,
    /// There is a file.
    Open { file: File, path: tempfile::TempPath, written: u64, store: Arc<SpillStore> },
    /// There was to be one and there is none.
    Unavailable,
}

impl Spill {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Open { path, .. } => Some(path),
            Self::None | Self::Unavailable => None,
        }
    }

    /// Writes on. A file that cannot hold all is no file with all of it, so it goes.
    pub(crate) fn append(&mut self, bytes: &[u8], place: &SpillPlace) {
        let Self::Open { file, written, store, .. } = self else { return };
        let length = bytes.len() as u64;
        let fits = *written + length <= place.max_stream_bytes && store.reserve(length);
        if fits {
            *written += length;
        }
        if !fits || file.write_all(bytes).is_err() {
            self.discard();
        }
    }

    /// Removes the file; dropping its path does that.
    pub(crate) fn discard(&mut self) {
        *self = Self::Unavailable;
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if let Self::Open { written, store, .. } = self {
            store.release(*written);
        }
    }
}

/// All files of one executor.
#[derive(Debug)]
pub(crate) struct SpillStore {
    max_bytes: u64,
    used: AtomicU64,
    /// One directory per candidate that was needed, or that it cannot be had.
    open: Mutex<HashMap<PathBuf, Option<ProcessDirectory>>>,
}

impl SpillStore {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, used: AtomicU64::new(0), open: Mutex::default() }
    }

    fn reserve(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Makes a file in one of the places.
    fn file(&self, candidate: &Path, stream: &str) -> Option<(File, tempfile::TempPath)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = open.entry(candidate.to_owned()).or_insert_with(|| {
            // A home directory may lack what is above its state directory.
            candidate.parent().and_then(|parent| std::fs::create_dir_all(parent).ok())?;
            ProcessDirectory::open(candidate).ok()
        });
        let directory = directory.as_ref()?.path();
        let private = std::fs::Permissions::from_mode(0o600);
        let made = tempfile::Builder::new()
            .prefix("output-")
            .suffix(&format!("-{stream}"))
            .permissions(private)
            .tempfile_in(directory)
            .ok()?;
        Some(made.into_parts())
    }
}

/// Says whether a confined command of a call can read a path and cannot write it.
pub(crate) type Fitness = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Where the files of one stream of one call go.
#[derive(Clone)]
pub(crate) struct SpillPlace {
    pub(crate) store: Arc<SpillStore>,
    pub(crate) candidates: Vec<PathBuf>,
    pub(crate) fits: Fitness,
    pub(crate) max_stream_bytes: u64,
    pub(crate) stream: &'static str,
}

impl SpillPlace {
    /// A place that takes nothing.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Self {
            store: Arc::new(SpillStore::new(0)),
            candidates: Vec::new(),
            fits: Arc::new(|_| false),
            max_stream_bytes: 0,
            stream: "stdout",
        }
    }

    /// Makes a file with what there is so far, in the first place that is fit for this call.
    pub(crate) fn create(&self, so_far: &[u8]) -> Spill {
        for candidate in self.candidates.iter().filter(|candidate| (self.fits)(candidate)) {
            if let Some((file, path)) = self.store.file(candidate, self.stream) {
                let mut spill = Spill::Open { file, path, written: 0, store: Arc::clone(&self.store) };
                spill.append(so_far, self);
                return spill;
            }
        }
        Spill::Unavailable
    }
}

/// Where files go unless somebody says otherwise: on a disk, in the state directory of the user; else beside other files of
/// a running system.
pub(crate) fn default_places() -> Vec<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = std::env::home_dir().filter(|home| home.is_absolute() && home.parent().is_some());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(home?.join(".local/state")));
    let user = rustix::process::geteuid().as_raw();
    let mut places: Vec<PathBuf> = state.into_iter().map(|state| state.join("pinfold-output")).collect();
    if user == 0 {
        places.push("/var/lib/pinfold-output".into());
        places.push("/run/pinfold-output".into());
    }
    places.extend(absolute("XDG_RUNTIME_DIR").map(|base| base.join("pinfold-output")));
    places.push(format!("/run/user/{user}/pinfold-output").into());
    // Under danger-full-access and Landlock it can be read like any other place.
    places.push(format!("/tmp/pinfold-output-{user}").into());
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn place(base: &Path, max_stream_bytes: u64, max_bytes: u64) -> SpillPlace {
        SpillPlace {
            store: Arc::new(SpillStore::new(max_bytes)),
            candidates: vec![base.join("unfit"), base.join("deep/er/fit")],
            fits: Arc::new(|path| path.ends_with("fit") && !path.ends_with("unfit")),
            max_stream_bytes,
            stream: "stderr",
        }
    }

    /// U312, U314: the whole stream, in a private file of a private directory; W57: it goes with its result.
    #[test]
    fn a_file_is_private_and_whole_and_goes() {
        let base = tempfile::tempdir().unwrap();
        let place = place(base.path(), 100, 100);
        let mut spill = place.create(b"begin ");
        spill.append(b"end", &place);
        let path = spill.path().unwrap().to_owned();
        assert_eq!(std::fs::read(&path).unwrap(), b"begin end");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert!(path.to_str().unwrap().ends_with("-stderr") && !base.path().join("unfit").exists());
        drop(spill);
        assert!(!path.exists());
        assert_eq!(place.store.used.load(Ordering::Relaxed), 0);
        drop(place);
        assert_eq!(std::fs::read_dir(base.path().join("deep/er/fit")).unwrap().count(), 0);
    }

    /// U313: more than a file may hold leaves no file; the quota of all files counts as well.
    #[test]
    fn a_file_that_cannot_hold_all_goes_at_once() {
        let base = tempfile::tempdir().unwrap();
        let small = place(base.path(), 8, 100);
        let mut spill = small.create(b"12345678");
        let path = spill.path().unwrap().to_owned();
        spill.append(b"9", &small);
        assert!(spill.path().is_none() && !path.exists());
        let shared = place(base.path(), 8, 10);
        let first = shared.create(b"12345678");
        assert!(shared.create(b"123").path().is_none());
        drop(first);
        assert!(shared.create(b"123").path().is_some());
    }
}
