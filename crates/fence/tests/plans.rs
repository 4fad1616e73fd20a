//! Random plans of operations beside random changes by others, with an oracle for escapes: whatever happens, nothing outside
//! changes, and what was written is where a plain look finds it. `PINFOLD_FUZZ_SECONDS=7200` goes on for hours,
//! `PINFOLD_FUZZ_SEED=N` repeats one plan.

mod scene;

use pinfold_fence::edit::Replacement;
use pinfold_fence::{Abort, Act, Fence, Intent, Replace};
use pinfold_policy::{FileErrorCode as Code, SandboxMode};
use scene::Scene;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A small generator (xorshift), so that a seed is a plan.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    fn path(&mut self, scene: &Scene) -> PathBuf {
        let mut path = match self.roll(8) {
            0 => scene.ws.clone(),
            1 => scene.base.clone(),
            2 => scene.out.clone(),
            _ => PathBuf::new(),
        };
        for _ in 0..=self.roll(4) {
            path.push(self.pick(&["a", "b", "c", "a", "b", "c", "..", ".", "out", "f", "ws"]));
        }
        path
    }
}

/// What must not change: every name outside with its inode, size and times.
fn outside(scene: &Scene) -> Vec<(PathBuf, u64, u64, i64, i64)> {
    let mut found = Vec::new();
    let mut todo = vec![scene.out.clone()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let it = std::fs::symlink_metadata(entry.path()).unwrap();
            if it.is_dir() {
                todo.push(entry.path());
            }
            found.push((entry.path(), it.ino(), it.size(), it.mtime_nsec(), i64::from(it.mode())));
        }
    }
    found.sort();
    found
}

/// A change by somebody who may write the workspace only.
fn disturb(dice: &mut Dice, scene: &Scene) {
    let name = |dice: &mut Dice| {
        let mut path = scene.ws.clone();
        (0..=dice.roll(2)).for_each(|_| path.push(dice.pick(&["a", "b", "c", "f"])));
        path
    };
    let at = name(dice);
    // SECURITY of the test: it must not go out through a link itself.
    let inside = at.parent().unwrap().canonicalize().is_ok_and(|parent| parent.starts_with(&scene.ws));
    if !inside {
        return;
    }
    let other = name(dice);
    let other_inside = other.parent().unwrap().canonicalize().is_ok_and(|parent| parent.starts_with(&scene.ws));
    // Refusals of the host are part of the game.
    match dice.roll(7) {
        0 => drop(std::fs::create_dir(&at)),
        1 => drop(symlink(dice.pick(&["..", "../out", "a", "b", "/", ".", "../../out/f", "c/../a"]), &at)),
        2 => drop(symlink(scene.out.join(dice.pick(&["", "f", "new"])), &at)),
        3 => drop(std::fs::remove_file(&at)),
        4 if other_inside => drop(std::fs::rename(&at, &other)),
        5 => drop(symlink(scene.ws.join(dice.pick(&["a", "b", "a/b"])), &at)),
        _ if std::fs::symlink_metadata(&at).is_err() => drop(std::fs::write(&at, "theirs")),
        _ => {}
    }
}

/// One operation; what it says must be what is there.
fn operate(dice: &mut Dice, scene: &Scene, fence: &Fence) -> Option<Code> {
    let (path, other) = (dice.path(scene), dice.path(scene));
    let abort = Abort::default();
    let result = match dice.roll(8) {
        0..=2 => fence.write(&path, b"ours", &Intent::Any, &abort).map(|written| {
            let place = written.target.process_path();
            assert!(place.starts_with(&scene.ws), "{place:?}");
            // A final dot is not told from its absence here.
            let plain: PathBuf = scene.ws.join(&path).components().collect();
            assert_eq!(plain.canonicalize().unwrap(), place);
            assert_eq!(std::fs::read(place).unwrap(), b"ours");
        }),
        3 => {
            let replacement = Replacement { old: "o", new: "0", all: true };
            fence.edit(&path, &replacement, &Intent::Any, &abort).map(drop)
        }
        4 => fence.remove(&path, dice.roll(2) == 0).map(drop),
        5 => fence.rename(&path, &other, if dice.roll(2) == 0 { Replace::Never } else { Replace::Files }).map(drop),
        6 => fence.create_directory(&path, dice.roll(2) == 0).map(drop),
        _ => fence.copy(&path, &other, Replace::Files).map(drop),
    };
    result.err().map(|error| error.code())
}

fn play(seed: u64, refused: &mut usize, done: &mut usize) {
    let mut dice = Dice(seed | 1);
    let scene = Scene::new();
    let fences = scene.fences(SandboxMode::WorkspaceWrite);
    let before = outside(&scene);
    for step in 0..40 {
        disturb(&mut dice, &scene);
        let path = dice.path(&scene);
        let acts = [Act::Read, Act::Write, Act::Create, Act::Remove, Act::Rename];
        let act = acts[dice.roll(acts.len())];
        let answer = |fence: &Fence| match fence.decide(act, &path) {
            Ok(target) => Ok(target.process_path().to_owned()),
            Err(error) => Err((error.code(), error.denial().map(|it| it.resolved.clone()))),
        };
        assert_eq!(answer(&fences[0]), answer(&fences[1]), "seed {seed}, step {step}: {act:?} {path:?}");
        match operate(&mut dice, &scene, &fences[step % 2]) {
            None => *done += 1,
            Some(Code::SandboxDenied) => *refused += 1,
            Some(_) => {}
        }
        assert_eq!(outside(&scene), before, "seed {seed}, step {step}: something outside changed");
    }
    assert_eq!(scene::litter(&scene.ws), Vec::<PathBuf>::new(), "seed {seed}");
    assert!(Path::new(&scene.ws).is_dir());
}

#[test]
fn no_plan_changes_anything_outside() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (mut refused, mut done) = (0, 0);
    if let Some(seed) = number("PINFOLD_FUZZ_SEED") {
        return play(seed, &mut refused, &mut done);
    }
    let end = number("PINFOLD_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut seeds = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
    let mut plans = 0_u64;
    while end.map_or(plans < 100, |end| Instant::now() < end) {
        // In CI the same plans each time; by the hour, other ones.
        seeds = seeds.wrapping_add(0x9e37_79b9_7f4a_7c15);
        play(if end.is_some() { seeds } else { plans * 7919 + 17 }, &mut refused, &mut done);
        plans += 1;
    }
    println!("{plans} plans: {done} operations done, {refused} refused");
    assert!(done as u64 > plans && refused as u64 > plans, "{done} done, {refused} refused: plans that try too little");
}
