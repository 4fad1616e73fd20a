//! The effects matrix: every attempt under every backend, mode and uid, judged from outside, with its unconfined control.
//!
//! Tests are called `BACKEND/MODE/UID/ATTEMPT` and found when the program starts. The attempts of one backend, mode and uid
//! are made in one run, when the first of its tests is. With `--exact NAME` (cargo-nextest) only that attempt is made.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::expect::{Row, rows};
use pinfold_conformance::judge::{Results, listed, run_all};
use pinfold_conformance::start::{Backend, Mode, uids};
use std::sync::{Arc, OnceLock};

type Shared = Arc<OnceLock<Result<Results, String>>>;

fn main() {
    let arguments = Arguments::from_args();
    // Standard-stream attempts are each a run of their own: tests/streams.rs.
    let rows: Vec<Row> = rows().into_iter().filter(|r| !r.id.starts_with("stream-")).collect();
    let alone = arguments.filter.as_deref().filter(|_| arguments.exact).and_then(|name| name.rsplit('/').next());
    let made: Vec<&'static str> = rows.iter().map(|r| r.id).filter(|id| alone.is_none_or(|a| a == *id)).collect();

    let mut trials = vec![Trial::test("table/lists-every-attempt", table_lists_every_attempt)];
    for backend in Backend::ALL {
        for mode in Mode::ALL {
            // Nothing tells the modes apart where nothing is confined.
            if backend == Backend::Unconfined && mode == Mode::ReadOnly {
                continue;
            }
            for uid in uids() {
                let name = format!("{}/{}/{uid}", backend.name(), mode.name());
                let shared = Shared::default();
                for row in &rows {
                    let (name, row) = (format!("{name}/{}", row.id), row.clone());
                    let (shared, made) = (Arc::clone(&shared), made.clone());
                    trials.push(Trial::test(name, move || {
                        let results = shared.get_or_init(|| run_all(backend, mode, uid, &made)).as_ref()?;
                        judge(&row, backend, mode, uid, results)
                    }));
                }
                let made = made.clone();
                trials.push(Trial::test(format!("{name}/changes-nothing-else"), move || {
                    let results = shared.get_or_init(|| run_all(backend, mode, uid, &made)).as_ref()?;
                    if results.stray.is_empty() { Ok(()) } else { Err(results.stray.join("; ").into()) }
                }));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn judge(row: &Row, backend: Backend, mode: Mode, uid: u32, results: &Results) -> Result<(), Failed> {
    let expectation = row.expectation(backend, mode, uid)?;
    let report = results.reports.get(row.id).ok_or_else(|| format!("the run did not get there: {}", results.end))?;
    let changes = results.changes.get(row.id).map_or(&[][..], Vec::as_slice);
    Ok(expectation.verdict(report, changes)?)
}

fn table_lists_every_attempt() -> Result<(), Failed> {
    let mut program: Vec<String> = listed()?.into_iter().map(|l| l.id).collect();
    let mut table: Vec<String> = rows().into_iter().map(|r| r.id.to_owned()).collect();
    program.sort();
    table.sort();
    if program == table {
        return Ok(());
    }
    let lacking: Vec<_> = program.iter().filter(|id| !table.contains(id)).collect();
    let unknown: Vec<_> = table.iter().filter(|id| !program.contains(id)).collect();
    Err(format!("the table lacks {lacking:?}; the program lacks {unknown:?}").into())
}
