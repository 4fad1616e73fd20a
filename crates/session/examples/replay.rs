//! Times the replay of long logs, for `cargo xtask bench session`: one line per length, in milliseconds.

#![forbid(unsafe_code)]

use pinfold_session::log::event::{By, Event};
use pinfold_session::{Access, Log, NewSession, Session, Store};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: replay DIRECTORY")?).canonicalize()?;
    let store = Store::open(&base.join("state"))?;
    for events in [1_000, 10_000, 100_000] {
        let session = store.create(&NewSession { cwd: base.clone(), ..NewSession::default() })?;
        let directory = store.directory(session.id().as_str())?;
        write(&session, &directory, events)?;
        let bytes = directory.join("log.jsonl").metadata()?.len();
        let mut best = f64::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            let log = Log::open(&directory, Access::Read)?;
            best = best.min(begun.elapsed().as_secs_f64() * 1e3);
            assert!(log.state().events() >= events);
        }
        println!("{events} {best:.2} {bytes}");
    }
    Ok(())
}

/// Calls, as most of a log is, with a change of mode now and then.
fn write(session: &Session, directory: &Path, events: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut log = Log::open(directory, Access::Append)?;
    let digest = pinfold_session::digest::of_argv(&["true".into()]);
    let mut left = events;
    while left > 0 {
        let batch = left.min(1000);
        log.transact(|state, _| {
            let first = state.events();
            let event = |index: u64| {
                let id = format!("c{}", first + index / 2);
                let text = match index % 2 {
                    0 => format!(r#"{{"id":"{id}","argv":"{digest}","policy":"{digest}","mode":"read-only"}}"#),
                    _ => format!(r#"{{"id":"{id}","enforcement":"full"}}"#),
                };
                match index % 2 {
                    0 => serde_json::from_str(&text).map(Event::Began),
                    _ => serde_json::from_str(&text).map(Event::Finished),
                }
            };
            let events = (0..batch).map(event).collect::<Result<Vec<_>, _>>();
            let events =
                events.map_err(|error| pinfold_session::SessionError::Refused { detail: error.to_string() })?;
            Ok((events, ()))
        })?;
        left -= batch;
    }
    session.set_mode(pinfold_policy::SandboxMode::ReadOnly, By::User)?;
    Ok(())
}
