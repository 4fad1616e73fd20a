//! Two processes add to one log while one of them is killed, over and over: no event that was acknowledged is lost, none
//! stands between the bytes of another, and the log can always be read.

mod scene;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_session::log::event::Event;
use pinfold_session::{Access, Log, Scope, Store};
use scene::Scene;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const ROUNDS: usize = 20;

fn main() {
    if let Some(state) = std::env::var_os("PINFOLD_TEST_APPEND") {
        return append(Path::new(&state));
    }
    if let Some(state) = std::env::var_os("PINFOLD_TEST_ASK") {
        return ask_and_wait(Path::new(&state));
    }
    let arguments = Arguments::from_args();
    let tests = vec![
        Trial::test("killed_writers_lose_nothing_that_was_acknowledged", killed_writers),
        Trial::test("a_grant_is_used_once_by_two_processes", one_of_two),
        Trial::test("a_yes_does_not_outlive_its_asker", a_yes_does_not_outlive_its_asker),
    ];
    libtest_mimic::run(&arguments, tests).exit();
}

/// Adds events for ever, and says each one's name once it is acknowledged.
fn append(state: &Path) {
    let session = std::env::var("PINFOLD_TEST_SESSION").unwrap();
    let name = std::env::var("PINFOLD_TEST_NAME").unwrap();
    let session = Store::open(state).unwrap().session(&session, Access::Append).unwrap();
    for count in 0_u64.. {
        let path = PathBuf::from(format!("/{name}/{count}"));
        session.grant_directory(&path, None).unwrap();
        println!("{}", path.display());
        // Enough for the other one to come in between.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn writer(scene: &Scene, session: &str, name: &str) -> Writer {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("PINFOLD_TEST_APPEND", scene.store.root()).env("PINFOLD_TEST_SESSION", session);
    Writer(command.env("PINFOLD_TEST_NAME", name).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

fn killed_writers() -> Result<(), Failed> {
    let scene = Scene::new();
    let session = scene.session();
    let id = session.id().as_str();
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut one = writer(&scene, id, &format!("one{round}"));
        let mut two = writer(&scene, id, &format!("two{round}"));
        let mut lines = [&mut one, &mut two].map(|it| BufReader::new(it.0.stdout.take().unwrap()).lines());
        // Both are at work; then the first is killed wherever it is, and the second a little later.
        for lines in &mut lines {
            acknowledged.extend(lines.next().transpose()?);
        }
        for _ in 0..round % 7 {
            acknowledged.extend(lines[round % 2].next().transpose()?);
        }
        drop(one);
        acknowledged.extend(lines[1].next().transpose()?);
        drop(two);
        for lines in lines {
            for line in lines {
                acknowledged.insert(line?);
            }
        }
        let state = scene.again(&session).state()?;
        let found: BTreeSet<String> = state
            .grants()
            .filter_map(|given| match &given.scope {
                Scope::Write { path } => Some(path.display().to_string()),
                Scope::Mode { .. } | Scope::Effect { .. } => None,
            })
            .collect();
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        if !lost.is_empty() {
            return Err(format!("round {round}: lost {lost:?}").into());
        }
    }
    assert!(acknowledged.len() > 2 * ROUNDS, "{}", acknowledged.len());
    // Not interleaved: every line is a whole event, and a writer that comes now is understood.
    session.grant_directory(Path::new("/after"), None)?;
    let directory = scene.store.directory(id)?;
    let mut count = 0;
    Log::read_all(&directory, |record| count += usize::from(matches!(record.event, Event::Given(_))))?;
    assert!(count > acknowledged.len());
    Ok(())
}

/// Threads with files of their own are as apart as processes are: the lock belongs to the open file.
fn one_of_two() -> Result<(), Failed> {
    use pinfold_policy::{Restrictions, SandboxMode};
    use pinfold_session::{Approvals, Deployment, Verdict, Wish};
    for _ in 0..20 {
        let scene = Scene::new();
        let session = scene.session();
        let argv = scene::words(&["touch", "f"]);
        let policy = scene::policy_of(&scene::service(SandboxMode::ReadOnly), &session);
        let closed = Restrictions::default();
        let cwd = scene.workspace();
        // The asker is gone by the time of the yes, so the grant waits in the log.
        let approvals = Approvals::new(&Deployment::default()).answered_elsewhere();
        let cancel = pinfold_providers::Cancel::new();
        let wish =
            Wish { sandbox_permissions: Some("workspace-write"), justification: Some("the build writes"), write: None };
        let others = scene.again(&session);
        let answering = std::thread::spawn(move || {
            loop {
                let state = others.state().unwrap();
                if let Some(asked) = state.open_asks().next() {
                    others.answer(&asked.id, Verdict::Allowed(0), pinfold_session::log::event::By::User).unwrap();
                    return;
                }
                std::thread::yield_now();
            }
        });
        let call = scene::call(&argv, &cwd, &policy, &closed);
        let approved = Approvals::request(Some(&approvals), Some(&session), &call, &wish, &cancel)?.unwrap();
        answering.join().unwrap();
        // It was used by the asker; whoever comes now, in any process, comes too late.
        let again = scene.again(&session).use_grant(approved.grant(), approved.digest(), &argv);
        assert_eq!(again.unwrap_err().code(), "GRANT_UNUSABLE");
        // And of several that come at once, one gets it.
        let other = scene.again(&session);
        let asked = ask_and_leave(&other, &call, &wish);
        other.answer(&asked, Verdict::Allowed(0), pinfold_session::log::event::By::User)?;
        let (id, digest) = {
            let state = other.state()?;
            let given = state.grants().next().unwrap();
            (given.id.clone(), given.digest.unwrap())
        };
        let racers: Vec<_> = (0..4)
            .map(|_| {
                let (mine, id, argv) = (scene.again(&session), id.clone(), argv.clone());
                std::thread::spawn(move || mine.use_grant(&id, digest, &argv).is_ok())
            })
            .collect();
        let won = racers.into_iter().map(|racer| racer.join().unwrap()).filter(|won| *won).count();
        assert_eq!(won, 1);
    }
    Ok(())
}

/// Asks and waits for the answer of another process, and says what came of it.
fn ask_and_wait(state: &Path) {
    let session = std::env::var("PINFOLD_TEST_SESSION").unwrap();
    let session = Store::open(state).unwrap().session(&session, Access::Append).unwrap();
    let result = same_request(&session);
    println!("{}", if result.is_some() { "granted" } else { "refused" });
}

/// The same request, whoever makes it: nobody here answers.
fn same_request(session: &pinfold_session::Session) -> Option<pinfold_session::Approved> {
    use pinfold_policy::{Restrictions, SandboxMode};
    use pinfold_session::{Approvals, Deployment, Wish};
    let (argv, cwd, closed) = (scene::words(&["touch", "f"]), session.cwd().to_owned(), Restrictions::default());
    let policy = scene::policy_of(&scene::service(SandboxMode::ReadOnly), session);
    let mut approvals = Approvals::new(&Deployment::default());
    if std::env::var_os("PINFOLD_TEST_ASK").is_some() {
        approvals = approvals.answered_elsewhere();
    }
    let wish = Wish { sandbox_permissions: Some("workspace-write"), justification: Some("x"), write: None };
    let call = scene::call(&argv, &cwd, &policy, &closed);
    Approvals::request(Some(&approvals), Some(session), &call, &wish, &pinfold_providers::Cancel::new()).ok().flatten()
}

fn a_yes_does_not_outlive_its_asker() -> Result<(), Failed> {
    use pinfold_session::Verdict;
    use pinfold_session::log::event::By;
    let scene = Scene::new();
    let session = scene.session();
    let asker = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("PINFOLD_TEST_ASK", scene.store.root()).env("PINFOLD_TEST_SESSION", session.id().as_str());
        let child = Writer(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        loop {
            if let Some(asked) = session.state().unwrap().open_asks().next() {
                return (child, asked.clone());
            }
            std::thread::yield_now();
        }
    };
    // The control: whoever waits gets it.
    let (mut child, asked) = asker();
    assert!(!asked.is_orphaned());
    session.answer(&asked.id, Verdict::Allowed(0), By::User)?;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.0.stdout.take().unwrap(), &mut said)?;
    assert_eq!(said, "granted\n");
    // Killed while it waits: the yes is for nobody.
    let (child, asked) = asker();
    drop(child);
    assert!(asked.is_orphaned());
    assert_eq!(session.answer(&asked.id, Verdict::Allowed(0), By::User).unwrap_err().code(), "SESSION_EVENT_REFUSED");
    let state = session.state()?;
    assert_eq!((state.open_asks().count(), state.grants().count()), (0, 0));
    // Killed between the yes and the call: the same request by another process is a question of its own.
    let (child, asked) = asker();
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP)?;
    session.answer(&asked.id, Verdict::Allowed(0), By::User)?;
    let given = session.state()?.grants().next().unwrap().clone();
    drop(child);
    assert!(same_request(&session).is_none());
    // U567: a question that a killed asker has left is answered when the next one is asked.
    let (child, asked) = asker();
    drop(child);
    assert!(same_request(&session).is_none());
    assert!(session.state()?.open_ask(&asked.id).is_none());
    let argv = scene::words(&["touch", "f"]);
    let used = session.use_grant(&given.id, given.digest.unwrap(), &argv).unwrap_err();
    assert!(used.to_string().contains("for the process that asked"), "{used}");
    Ok(())
}

/// Asks, and is withdrawn without the log learning of it: what a killed asker leaves.
fn ask_and_leave(
    session: &pinfold_session::Session,
    call: &pinfold_session::Call<'_>,
    wish: &pinfold_session::Wish<'_>,
) -> String {
    pinfold_session::Approvals::question(session, call, wish, 60_000).unwrap().unwrap().id
}
