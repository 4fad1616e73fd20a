//! The environment: what steers loaders reaches the command and nothing before it, nobody's secrets are found in processes
//! outside, and the variables of temp areas lead to one that exists. (B004, B005, B066)

mod scene;

use scene::{Answer, Scene};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

const BACKENDS: [&str; 3] = ["namespace", "bwrap", "landlock"];

/// A library that appends the name of the program it is loaded into to a file outside the workspace.
const WITNESS: &str = "
#include <stdio.h>
#include <stdlib.h>
extern char *program_invocation_short_name;
__attribute__((constructor)) static void loaded(void) {
    FILE *file = fopen(getenv(\"WITNESS\"), \"a\");
    if (file) { fprintf(file, \"%s\\n\", program_invocation_short_name); fclose(file); }
    if (getenv(\"SAY\")) { puts(\"loaded\"); fflush(stdout); }
}
";

fn witness(scene: &Scene) -> std::path::PathBuf {
    let (source, library) = (scene.path("witness.c"), scene.path("workspace/witness.so"));
    std::fs::write(&source, WITNESS).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.expect("cc (apt package gcc)").success());
    library
}

#[test]
fn a_library_of_the_workspace_is_loaded_into_the_command_and_into_nothing_outside() {
    let scene = Scene::new();
    let (library, marks) = (witness(&scene), scene.path("outside/marks"));
    let marked = || std::fs::read_to_string(&marks).unwrap_or_default();
    // The programs before the command are started without the variables by whoever calls; pinfold itself is dynamic as well, and
    // its caller's business. So the argv is what is examined: of `confine`, and of `run` by what it starts.
    for backend in BACKENDS {
        let printed = scene.run(["confine", "--backend", backend, "--", "/bin/sh", "-c", "echo $LD_PRELOAD"]);
        let object: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
        let argv: Vec<&str> = object["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).current_dir(scene.workspace()).stdin(std::process::Stdio::null());
        command.env("LD_PRELOAD", &library).env("WITNESS", &marks).env("SAY", "1");
        let answer = Answer::of(&mut command);
        assert_eq!(answer.out, format!("loaded\n{}\n", library.display()), "{backend}: {answer:?}");
        assert_eq!(marked(), "", "{backend}");
    }
    // The control: bubblewrap by itself loads it, and writes outside.
    let mut bare = Command::new("/usr/bin/bwrap");
    bare.args(["--ro-bind", "/", "/", "--dev", "/dev", "/bin/true"]);
    bare.env("LD_PRELOAD", &library).env("WITNESS", &marks);
    assert_eq!(Answer::of(&mut bare).status, Some(0));
    assert_eq!(marked(), "bwrap\n");
}

#[test]
fn run_gives_what_steers_loaders_and_interpreters_to_the_command_alone() {
    let scene = Scene::new();
    let names = [
        "LD_LIBRARY_PATH",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "LD_AUDITX",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "PERL5OPT",
        "BASH_ENV",
    ];
    for backend in BACKENDS {
        let mut command = scene.pinfold();
        command.args(["run", "--backend", backend, "--", "/usr/bin/env"]);
        for name in names {
            command.env(name, format!("/nowhere/{name}"));
        }
        let answer = Answer::of(&mut command);
        for name in names {
            assert!(
                answer.out.lines().any(|line| line == format!("{name}=/nowhere/{name}")),
                "{backend} {name}: {answer:?}"
            );
        }
        assert!(!answer.out.contains("PINFOLD_INSIDE_"), "{answer:?}");
    }
    // Scrubbing goes by the name that the command would see.
    let mut command = scene.pinfold();
    command.args(["run", "--backend", "bwrap", "--env", "scrub", "--", "/usr/bin/env"]).env("LD_SECRET", "x");
    assert!(!Answer::of(&mut command).out.contains("LD_SECRET"));
}

#[test]
fn a_scrubbed_value_is_in_no_process_that_the_command_can_look_at() {
    const SEARCH: &str = "
import glob
found = []
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try:
        if ('very-' + 'secret-value').encode() in open(path, 'rb').read():
            found.append(path)
    except OSError:
        pass
print('found' if found else 'nothing')
";
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/search.py"), SEARCH).unwrap();
    let with_secret = |options: &[&str]| {
        let mut command = scene.pinfold();
        command.arg("run").args(options).args(["--", "python3", "search.py"]).env("GH_TOKEN", "very-secret-value");
        let answer = Answer::of(&mut command);
        assert_eq!(answer.status, Some(0), "{answer:?}");
        answer.out
    };
    // Unconfined, pinfold's own environment is found, although the command's is scrubbed.
    assert_eq!(with_secret(&["--mode", "danger-full-access", "--env", "scrub"]), "found\n");
    for backend in BACKENDS {
        assert_eq!(with_secret(&["--backend", backend]), "found\n", "its own");
        assert_eq!(with_secret(&["--backend", backend, "--env", "scrub"]), "nothing\n", "{backend}");
    }
}

/// Prints each variable of temp areas, and whether a file can be made where it leads.
const TEMPS: &str = "
import os, tempfile
values = {name: os.environb.get(name.encode()) for name in ('TMPDIR', 'TMP', 'TEMP')}
assert len(set(values.values())) == 1, values
place = values['TMPDIR']
assert os.environb[b'TMPPREFIX'] == place + b'/zsh', os.environb[b'TMPPREFIX']
assert os.path.isabs(place) and os.path.isdir(place) and not os.path.islink(place), place
assert tempfile.gettempdirb() == place, (tempfile.gettempdirb(), place)
open(os.environb[b'TMPPREFIX'] + b'1', 'w').close()
with tempfile.NamedTemporaryFile() as file: file.write(b'x')
print('good')
";

#[test]
fn temp_variables_agree_and_lead_to_a_writable_place_whatever_the_caller_has() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/temps.py"), TEMPS).unwrap();
    let denied = scene.folder("outside/denied");
    let hostile: [&[u8]; 7] =
        [b"relative", b"", b"/nowhere/at/all", b"/tmp/a\nb", b"/tmp/\xff", b"/etc", denied.as_os_str().as_bytes()];
    for backend in BACKENDS {
        for value in hostile {
            let run = |mode: &str, program: &[&str]| {
                let mut command = scene.pinfold();
                // What an object of deny rules cannot express, Landlock refuses to be used for.
                command.args(["run", "--backend", backend, "--mode", mode]);
                if backend != "landlock" {
                    command.args([OsStr::new("--deny-read"), denied.as_os_str()]);
                }
                command.arg("--").args(program);
                for name in ["TMPDIR", "TMP", "TEMP", "TMPPREFIX"] {
                    command.env(name, OsStr::from_bytes(value));
                }
                Answer::of(&mut command)
            };
            let answer = run("workspace-write", &["python3", "temps.py"]);
            assert_eq!(answer.out, "good\n", "{backend} {value:?}: {answer:?}");
            // Read-only has no temp area: what the caller has is left, and leads nowhere that can be written.
            let left = "import os; print(os.environb[b'TMPDIR'] == bytes.fromhex('HEX'), os.access(os.environb[b'TMPDIR'], os.W_OK))";
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            let answer = run("read-only", &["python3", "-c", &left.replace("HEX", &hex)]);
            assert_eq!(answer.out.split(' ').next(), Some("True"), "{backend} {value:?}: {answer:?}");
        }
        let mut command = scene.pinfold();
        command.env("TMPDIR", "/tmp").args(["run", "--backend", backend, "--mode", "read-only", "--"]);
        let answer = Answer::of(command.args(["sh", "-c", "(: > $TMPDIR/pinfold-x) 2>/dev/null || echo refused"]));
        assert_eq!(answer.out, "refused\n", "{backend}: {answer:?}");
    }
}

#[test]
fn a_hostile_home_of_the_caller_reaches_the_command_as_it_is_and_opens_nothing() {
    let scene = Scene::new();
    for value in [&b"relative"[..], b"/nowhere", b"/root\n/x", b"/\xff", b"/"] {
        for backend in BACKENDS {
            let mut command = scene.pinfold();
            command.env("HOME", OsStr::from_bytes(value)).env("XDG_RUNTIME_DIR", scene.folder("runtime"));
            std::fs::set_permissions(scene.path("runtime"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
            command.arg("run").args(["--backend", backend, "--workspace"]).arg(scene.workspace()).arg("--");
            command.args(["python3", "-c", "import os; print(os.environb[b'HOME'].hex())"]);
            let answer = Answer::of(&mut command);
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(answer.out, hex + "\n", "{backend} {value:?}: {answer:?}");
        }
    }
    assert!(!Path::new("relative").exists());
    // One below a shared temp directory is not there in workspace-write, and the report says so.
    let below = tempfile::tempdir_in("/tmp").unwrap();
    for (mode, missing) in [("workspace-write", true), ("read-only", false)] {
        let mut command = scene.pinfold();
        command.env("HOME", below.path()).args(["run", "--json", "--backend", "namespace", "--mode", mode, "--"]);
        let answer = Answer::of(command.args(["sh", "-c", "test -d \"$HOME\" && echo there"]));
        assert_eq!(answer.out.is_empty(), missing, "{answer:?}");
        let notes = answer.last_json()["report"]["notes"].to_string();
        assert_eq!(notes.contains("The home directory"), missing, "{notes}");
    }
}
