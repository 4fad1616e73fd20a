//! The effects matrix: every attempt under every backend, mode and uid, judged from outside, with its unconfined control.
//!
//! Tests are called `BACKEND/MODE/UID/ATTEMPT` and found when the program starts. The attempts of one backend, mode and uid
//! are made in one run of `pinfold run`, when the first of its tests is; `report-equals-outcome` compares that run's report
//! with what its attempts came to. `by-launcher`: the run was started by the launcher alone, because the CLI closes
//! descriptors before the launcher sees them. `by-resident`: by a program whose calls a resident launcher begins. With `--exact NAME` (cargo-nextest) only that attempt is made.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::expect::{Expectation, Row, rows};
use pinfold_conformance::judge::{Results, listed, run_all};
use pinfold_conformance::promise;
use pinfold_conformance::start::{Backend, Driver, Mode, uids};
use std::sync::{Arc, OnceLock};

type Check = Box<dyn FnOnce(&Results) -> Result<(), Failed> + Send>;

type Shared = OnceLock<Result<Arc<Results>, String>>;

fn main() {
    let arguments = Arguments::from_args();
    // Standard-stream attempts are each a run of their own: tests/streams.rs.
    let rows: Vec<Row> = rows().into_iter().filter(|r| !r.id.starts_with("stream-")).collect();
    let made = asked_for(&arguments, rows.iter().map(|r| r.id).collect());

    let mut trials = vec![Trial::test("table/lists-every-attempt", table_lists_every_attempt)];
    for (driver, backend, mode, uid) in cells() {
        // What the launcher alone has to show: it closes what the CLI would have closed already.
        let is_ours = move |id: &str| driver != Driver::Launcher || id.starts_with("inherit-");
        let made: Vec<&'static str> = made.iter().copied().filter(|id| is_ours(id)).collect();
        let shared = Shared::default();
        // The first test of this run makes it; the others read what it came to.
        let results = Arc::new(move || -> Result<Arc<Results>, Failed> {
            let run = || run_all(driver, backend, mode, uid, &made).map(Arc::new);
            Ok(Arc::clone(shared.get_or_init(run).as_ref()?))
        });
        let by = match driver {
            Driver::Cli => "",
            Driver::Launcher => "by-launcher/",
            Driver::Resident => "by-resident/",
        };
        let mut add = |claim: &str, check: Check| {
            let results = Arc::clone(&results);
            let name = format!("{}/{}/{uid}/{by}{claim}", backend.name(), mode.name());
            trials.push(Trial::test(name, move || check(&*results()?)));
        };
        for row in rows.iter().filter(|row| is_ours(row.id)).cloned() {
            add(row.id, Box::new(move |results| judge(&row, backend, mode, uid, results)));
        }
        add("changes-nothing-else", Box::new(changes_nothing_else));
        if backend == Backend::Unconfined {
            let rows = rows.clone();
            add("passes-no-denial", Box::new(move |results| passes_no_denial(&rows, uid, results)));
        } else if driver != Driver::Launcher {
            let rows = rows.clone();
            let compare = move |results: &Results| promise::compare(&rows, backend, mode, uid, results);
            add("report-equals-outcome", Box::new(move |results| all_well(&compare(results)?)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Every run that is made.
fn cells() -> Vec<(Driver, Backend, Mode, u32)> {
    let mut cells = Vec::new();
    for driver in [Driver::Cli, Driver::Launcher, Driver::Resident] {
        for backend in Backend::ALL {
            for mode in Mode::ALL {
                // Nothing tells the modes apart where nothing is confined, and nothing the drivers.
                if backend == Backend::Unconfined && (mode == Mode::ReadOnly || driver != Driver::Cli) {
                    continue;
                }
                // Bubblewrap is executed by whoever runs the command.
                if backend == Backend::Bwrap && driver == Driver::Resident {
                    continue;
                }
                cells.extend(uids().into_iter().map(|uid| (driver, backend, mode, uid)));
            }
        }
    }
    cells
}

/// Which attempts to make: all, or the one that `--exact` names.
fn asked_for(arguments: &Arguments, all: Vec<&'static str>) -> Vec<&'static str> {
    let name = arguments.filter.as_deref().filter(|_| arguments.exact);
    let alone = name.and_then(|name| name.rsplit('/').next());
    match all.iter().find(|id| alone == Some(**id)) {
        Some(id) => vec![*id],
        None => all,
    }
}

fn changes_nothing_else(results: &Results) -> Result<(), Failed> {
    all_well(&results.stray)
}

fn all_well(faults: &[String]) -> Result<(), Failed> {
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
}

/// Calibration: what happens without walls passes no test of a denial, or that test proves nothing. Exempt are attempts that
/// the host itself denies, as their controls say.
fn passes_no_denial(rows: &[Row], uid: u32, results: &Results) -> Result<(), Failed> {
    let mut broken = Vec::new();
    for row in rows {
        let control = row.expectation(Backend::Unconfined, Mode::WorkspaceWrite, uid)?;
        for backend in Backend::ALL.into_iter().filter(|b| *b != Backend::Unconfined) {
            for mode in Mode::ALL {
                let is_denial = matches!(row.expectation(backend, mode, uid)?, Expectation::Denied(_));
                let is_exempt = matches!(control, Expectation::NotPossibleHere(_));
                if is_denial && !is_exempt && judge(row, backend, mode, uid, results).is_ok() {
                    broken.push(format!("{}/{}/{}", backend.name(), mode.name(), row.id));
                }
            }
        }
    }
    all_well(&broken)
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
