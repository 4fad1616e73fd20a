//! Proves what the walls hold, from outside: fixtures, a victim process, snapshots, expectations and the judge.
//!
//! Belongs here: everything that only a test needs. Nothing of it ships, and no crate that ships may depend on it.
//! Relies on Linux; the numbers of each attempt come from `docs/` and from measuring (`effects.md`).

pub mod context;
pub mod errno;
pub mod expect;
pub mod fixture;
pub mod judge;
pub mod promise;
pub mod sleeper;
pub mod snapshot;
pub mod start;
pub mod sys;
pub mod victim;
pub mod walls;
pub mod world;
