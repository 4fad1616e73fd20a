//! A workspace, a place outside, and fences over them.
#![allow(dead_code)] // each test program uses a part

pub(crate) use litter::litter;
use pinfold_fence::{Durability, Fence, FenceOptions, Resolver};
use pinfold_policy::{ExecutionPolicy, Restrictions, SandboxMode};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[path = "../litter/mod.rs"]
mod litter;

pub(crate) struct Scene {
    _base: tempfile::TempDir,
    pub(crate) base: PathBuf,
    pub(crate) ws: PathBuf,
    pub(crate) out: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (ws, out) = (base.join("ws"), base.join("out"));
        std::fs::create_dir(&ws).unwrap();
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("f"), "outside").unwrap();
        Self { _base: directory, base, ws, out }
    }

    pub(crate) fn policy(&self, mode: SandboxMode) -> ExecutionPolicy {
        ExecutionPolicy::new(mode, &self.ws)
    }

    pub(crate) fn options(&self, resolver: Resolver) -> FenceOptions {
        FenceOptions { resolver: Some(resolver), durability: Durability::Unsynced, ..FenceOptions::default() }
    }

    pub(crate) fn fence_by(&self, mode: SandboxMode, resolver: Resolver) -> Fence {
        Fence::open(&self.policy(mode), self.options(resolver)).unwrap()
    }

    /// One fence for each way to resolve paths.
    pub(crate) fn fences(&self, mode: SandboxMode) -> Vec<Fence> {
        [Resolver::Openat2, Resolver::Walk].map(|resolver| self.fence_by(mode, resolver)).into()
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence_by(SandboxMode::WorkspaceWrite, Resolver::detect())
    }

    pub(crate) fn denying(&self, paths: &[&Path], resolver: Resolver) -> Fence {
        let denied_reads = paths.iter().map(|path| path.to_path_buf()).collect();
        let restrictions = Restrictions { denied_reads, ..Restrictions::default() };
        let options = FenceOptions { restrictions, ..self.options(resolver) };
        Fence::open(&self.policy(SandboxMode::WorkspaceWrite), options).unwrap()
    }

    pub(crate) fn link(&self, name: &str, to: impl AsRef<Path>) {
        symlink(to, self.ws.join(name)).unwrap();
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.ws.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.ws.join(name)).unwrap()
    }

    /// Everything outside as it was, and nothing of ours left inside.
    pub(crate) fn check(&self) {
        let names = |path: &Path| {
            let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&self.out), ["f"], "something came to be outside");
        assert_eq!(std::fs::read_to_string(self.out.join("f")).unwrap(), "outside");
        assert_eq!(litter(&self.ws), Vec::<PathBuf>::new());
        assert_eq!(litter(&self.out), Vec::<PathBuf>::new());
    }
}
