//! A root is the directory that the caller meant, before, during and between calls, and no content that a command wrote
//! gives anybody more (weaknesses W02, W30; field cases B029, B033, B120, B126, B129, B133).
//!
//! Tests are called `BACKEND/UID/CLAIM`. Without walls each act must succeed, as far as it is one of escape.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::judge::{Finished, wait_within};
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{LIMIT, Walls, expect, expect_equal, printed, text, written};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

type Claim = (&'static str, fn(&World) -> Result<(), String>);

const CLAIMS: &[Claim] = &[
    ("replaced-root-is-refused", replaced_root_is_refused),
    ("root-replaced-during-a-call-leads-nowhere", root_replaced_during_a_call_leads_nowhere),
    ("roots-inside-roots-stay-where-they-are", roots_inside_roots_stay_where_they_are),
    ("moved-inner-root-is-no-root-of-the-next-call", moved_inner_root_is_no_root_of_the_next_call),
    ("content-of-the-workspace-grants-nothing", content_of_the_workspace_grants_nothing),
    ("workspace-by-a-link-is-the-workspace", workspace_by_a_link_is_the_workspace),
    ("removed-working-directory-spoils-one-call", removed_working_directory_spoils_one_call),
    ("programs-behind-links-and-scripts-run", programs_behind_links_and_scripts_run),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for uid in uids() {
            for (name, claim) in CLAIMS {
                let test = move || {
                    let world = World { backend, walls: Walls::new(uid)? };
                    Ok::<(), Failed>(claim(&world)?)
                };
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), test));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct World {
    backend: Backend,
    walls: Walls,
}

impl World {
    fn is_confined(&self) -> bool {
        self.backend != Backend::Unconfined
    }

    fn ws(&self) -> PathBuf {
        self.walls.fixture.ws()
    }

    fn out(&self) -> PathBuf {
        self.walls.fixture.out()
    }

    fn folder(&self, path: &Path) -> Result<(), String> {
        let uid = Some(self.walls.fixture.uid);
        let made = std::fs::create_dir_all(path).and_then(|()| std::os::unix::fs::chown(path, uid, uid));
        made.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The shell script with these words of `pinfold run` instead of the workspace; without walls, the script itself.
    fn with(&self, words: &[&str], script: &str) -> Result<Finished, String> {
        let mut argv = Vec::new();
        if self.is_confined() {
            argv = [&text(&self.walls.pinfold()), "run", "--backend", self.backend.name()].map(str::to_owned).to_vec();
            argv.extend(words.iter().map(|word| (*word).to_owned()));
            argv.push("--".to_owned());
        }
        argv.extend(["/bin/sh", "-c", script].map(str::to_owned));
        Walls::finish(&mut self.walls.plain(&argv))
    }

    /// The shell script in the workspace.
    fn script(&self, script: &str) -> Result<Finished, String> {
        self.with(&["--workspace", &text(&self.ws())], script)
    }

    /// Removes the user's workspace and puts something in its place.
    fn replace_ws(&self, how: Replaced) -> Result<(), String> {
        let (ws, old) = (self.ws(), self.walls.fixture.base().join("old"));
        let done = std::fs::rename(&ws, &old).and_then(|()| match how {
            Replaced::Gone => Ok(()),
            Replaced::Other => {
                std::fs::create_dir(&ws).and_then(|()| std::fs::set_permissions(&ws, PermissionsExt::from_mode(0o777)))
            }
            Replaced::Link => symlink(self.out(), &ws),
            Replaced::LinkToItself => symlink(&old, &ws),
            Replaced::File => std::fs::write(&ws, ""),
        });
        done.map_err(|e| format!("{how:?}: {e}"))
    }

    fn put_ws_back(&self) -> Result<(), String> {
        let ws = self.ws();
        let gone = match std::fs::symlink_metadata(&ws) {
            Ok(it) if it.is_dir() => std::fs::remove_dir_all(&ws),
            Ok(_) => std::fs::remove_file(&ws),
            Err(_) => Ok(()),
        };
        let back = gone.and_then(|()| std::fs::rename(self.walls.fixture.base().join("old"), &ws));
        back.map_err(|e| e.to_string())
    }
}

#[derive(Clone, Copy, Debug)]
enum Replaced {
    Gone,
    Other,
    Link,
    LinkToItself,
    File,
}

/// Between the plan and the start somebody puts something else where the root was. Nothing runs, and a status line says
/// which stage refused (W02, B033).
fn replaced_root_is_refused(world: &World) -> Result<(), String> {
    let (ws, out) = (world.ws(), world.out());
    let act = format!("echo x > {}/in; echo x > in2; exit 0", ws.display());
    let mut argv = ["/bin/sh", "-c", &act].map(str::to_owned).to_vec();
    if world.is_confined() {
        let mut words = world.walls.run_words(Some(world.backend), Mode::WorkspaceWrite);
        words[1] = "confine".to_owned();
        words.splice(2..2, ["--json".to_owned(), "--cwd".to_owned(), "/".to_owned()]);
        words.extend(argv);
        let said = printed(&Walls::finish(&mut world.walls.plain(&words))?)?;
        let said: Value = serde_json::from_str(&said).map_err(|e| format!("{e}: {said}"))?;
        let words = said["argv"].as_array().ok_or("no argv")?;
        argv = words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    }
    let start = || Walls::finish(world.walls.plain(&argv).current_dir("/"));
    for how in [Replaced::Gone, Replaced::Other, Replaced::Link, Replaced::LinkToItself, Replaced::File] {
        world.replace_ws(how)?;
        let finished = start()?;
        let told = format!("{how:?}: {} {}", finished.status, written(&finished.stderr));
        let escaped = out.join("in");
        if world.is_confined() {
            let is_refused = finished.status.code() == Some(125)
                || world.backend == Backend::Bwrap && finished.status.code() == Some(1);
            expect(is_refused && !escaped.exists(), &told)?;
            if matches!(how, Replaced::Other) {
                expect(!ws.join("in").exists(), &told)?;
            }
        } else if matches!(how, Replaced::Link) {
            expect(escaped.exists(), format!("the control did not follow the link: {told}"))?;
        }
        world.put_ws_back()?;
    }
    // The same argv works again once the directory is back.
    let finished = start()?;
    expect(finished.status.success() && ws.join("in").exists(), written(&finished.stderr))
}

/// While the command runs, its workspace is moved away and a link to elsewhere takes its name: the command reaches its own
/// directory or nothing, never what the link leads to (W02).
fn root_replaced_during_a_call_leads_nowhere(world: &World) -> Result<(), String> {
    let (ws, out) = (world.ws(), world.out());
    let act = format!("echo ready; read line; echo x > {}/by-path; echo x > by-cwd; exit 0", ws.display());
    let mut command = world.walls.confined(world.backend, Mode::WorkspaceWrite, &["/bin/sh", "-c", &act]);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = started.map_err(|e| e.to_string())?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
    }
    expect_equal(line.as_str(), "ready\n")?;
    world.replace_ws(Replaced::Link)?;
    drop(child.stdin.take());
    wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
    let escaped = out.join("by-path").exists() || out.join("by-cwd").exists();
    expect(escaped != world.is_confined(), format!("escaped: {escaped}"))?;
    // By its own directory it still works.
    expect(world.walls.fixture.base().join("old/by-cwd").exists(), "its own directory took no write")
}

/// A root inside another root, and what leads to it, cannot be renamed or removed by the command (W02). Landlock has no wall
/// for that, and its report says so; what then becomes of the next call is the next claim.
fn roots_inside_roots_stay_where_they_are(world: &World) -> Result<(), String> {
    let ws = world.ws();
    world.folder(&ws.join("a"))?;
    world.folder(&ws.join("a/b"))?;
    let (inner, outer) = (text(&ws.join("a/b")), text(&ws));
    let act = "mv a moved && echo above; mv a/b other && echo inner; rmdir a/b && echo removed; echo x > a/b/in && echo write";
    let finished = world.with(&["--workspace", &outer, "--writable", &inner, "--json"], act)?;
    let said = written(&finished.stdout);
    let told = format!("{said} {}", written(&finished.stderr));
    match world.backend {
        Backend::Namespace | Backend::Bwrap => expect(said == "write\n", told),
        Backend::Unconfined => expect(said.starts_with("above\n"), told),
        Backend::Landlock => {
            expect(said.starts_with("above\n"), &told)?;
            expect(told.contains("A root inside another root can be renamed by the command"), &told)
        }
    }
}

/// Where the command can move an inner root away and leave a link there, the next call with the same roots refuses, and
/// nothing is written where the link leads (W02, R2).
fn moved_inner_root_is_no_root_of_the_next_call(world: &World) -> Result<(), String> {
    let (ws, out) = (world.ws(), world.out());
    world.folder(&ws.join("a"))?;
    world.folder(&ws.join("a/b"))?;
    world.folder(&out.join("b"))?;
    let (inner, outer) = (text(&ws.join("a/b")), text(&ws));
    let roots = ["--workspace", &outer, "--writable", &inner, "--json"];
    let trap = format!("mv a moved; ln -s {} a; exit 0", out.display());
    world.with(&roots, &trap)?;
    let finished = world.with(&roots, "echo x > a/b/in; exit 0")?;
    let told = format!("{}: {}", finished.status, written(&finished.stderr));
    expect(out.join("b/in").exists() != world.is_confined(), &told)?;
    if world.backend == Backend::Landlock {
        return expect(!finished.status.success() && told.contains("SANDBOX_INVALID_ROOT"), told);
    }
    expect(finished.status.success(), told)
}

/// Links, pointer files and configuration that a first call left open nothing for a second one: grants come from the caller
/// only (B033).
fn content_of_the_workspace_grants_nothing(world: &World) -> Result<(), String> {
    let (ws, out) = (world.ws(), world.out());
    for folder in ["gitdir", "secret", "configuration"] {
        world.folder(&out.join(folder))?;
    }
    let plant = format!(
        "ln -s {0}/secret objects; ln -s {0}/configuration .agents; ln -s {0} .git-link; mkdir sub; \
         echo 'gitdir: {0}/gitdir' > sub/.git; mkdir -p .pinfold; echo '{{\"writable\":[\"{0}\"]}}' > .pinfold/policy.json; \
         echo '{0}' > .git",
        out.display()
    );
    let planted = world.script(&plant)?;
    expect(planted.status.success() && ws.join("objects").is_symlink(), written(&planted.stderr))?;
    let use_it = format!(
        "echo x > objects/in; echo x > .agents/in; echo x > .git-link/in; echo x > {0}/gitdir/in; cd sub; echo x > {0}/in2; exit 0",
        out.display()
    );
    let finished = world.script(&use_it)?;
    expect(finished.status.success(), written(&finished.stderr))?;
    let reached: Vec<_> = ["secret/in", "configuration/in", "in", "gitdir/in", "in2"]
        .into_iter()
        .filter(|name| out.join(name).exists())
        .collect();
    expect_equal(reached.len(), if world.is_confined() { 0 } else { 5 })?;
    // Started from below, where the pointer file is: it moves no root.
    let below = world.with(
        &["--workspace", &text(&ws), "--cwd", &text(&ws.join("sub"))],
        &format!("echo x > {}/gitdir/again; exit 0", out.display()),
    )?;
    expect(out.join("gitdir/again").exists() != world.is_confined(), written(&below.stderr))
}

/// Both spellings of a workspace that is named by a link are the workspace, and nothing else is (B120).
fn workspace_by_a_link_is_the_workspace(world: &World) -> Result<(), String> {
    let (ws, out) = (world.ws(), world.out());
    let link = world.walls.fixture.base().join("link");
    symlink(&ws, &link).map_err(|e| e.to_string())?;
    let act = format!(
        "echo x > {}/one && echo x > {}/two && echo both; echo x > {}/escaped; exit 0",
        link.display(),
        ws.display(),
        out.display()
    );
    for root in [&link, &ws] {
        let finished = world.with(&["--workspace", &text(root)], &act)?;
        expect(written(&finished.stdout) == "both\n", written(&finished.stderr))?;
        expect(out.join("escaped").exists() != world.is_confined(), "outside")?;
    }
    Ok(())
}

/// A working directory that is gone is an error that names it, and the next call with another one works (B129).
fn removed_working_directory_spoils_one_call(world: &World) -> Result<(), String> {
    let ws = world.ws();
    let sub = ws.join("sub");
    world.folder(&sub)?;
    let (root, inside) = (text(&ws), text(&sub));
    if !world.is_confined() {
        // The control: what is there can be a working directory, what is gone cannot.
        let is_entered =
            || Walls::finish(world.walls.plain(&["/bin/pwd"]).current_dir(&sub)).is_ok_and(|it| it.status.success());
        let before = is_entered();
        std::fs::remove_dir(&sub).map_err(|e| e.to_string())?;
        return expect(before && !is_entered(), "the directory is still there");
    }
    let call = |cwd: &str| world.with(&["--workspace", &root, "--cwd", cwd], "pwd");
    expect_equal(printed(&call(&inside)?)?, format!("{inside}\n"))?;
    std::fs::remove_dir(&sub).map_err(|e| e.to_string())?;
    let refused = call(&inside)?;
    let told = format!("{}: {}", refused.status, written(&refused.stderr));
    expect(refused.status.code() != Some(0) && refused.stdout.is_empty() && told.contains(&inside), told)?;
    expect_equal(printed(&call(&root)?)?, format!("{root}\n"))
}

/// Programs behind links of several hops, interpreters by `#!` in every form, and what the kernel cannot execute (B133).
fn programs_behind_links_and_scripts_run(world: &World) -> Result<(), String> {
    let ws = world.ws();
    let prepare = format!(
        "mkdir -p bin v/1 r; cp /bin/echo r/t; ln -s ../../r/t v/1/t; ln -s ../v/1/t bin/t; ln -s /bin/sh interp; \
         printf '#!/usr/bin/env sh\\necho by-env\\n' > bin/env; printf '#!{}/interp\\necho by-link\\n' > bin/own; \
         printf '\\1\\2\\3' > bin/none; chmod 755 bin/env bin/own bin/none",
        ws.display()
    );
    let made = Walls::finish(&mut world.walls.plain(&["/bin/sh", "-c", &prepare]))?;
    expect(made.status.success(), written(&made.stderr))?;
    let run = |program: &str, argument: &str| {
        let argv = [text(&ws.join(program)), argument.to_owned()];
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut command = world.walls.confined(world.backend, Mode::WorkspaceWrite, &argv);
        Walls::finish(&mut command)
    };
    for (program, expected) in [("bin/t", "hop\n"), ("bin/env", "by-env\n"), ("bin/own", "by-link\n")] {
        expect_equal(printed(&run(program, "hop")?)?.as_str(), expected)?;
    }
    // What has no format is the command's own fault, as a shell would say; no shell is given it. Without walls that is up to
    // whoever starts it.
    if world.is_confined() {
        expect_equal(run("bin/none", "x")?.status.code(), Some(126))?;
    }
    Ok(())
}
