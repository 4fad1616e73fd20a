//! Everyday tools go on where the secrets that `pinfold run` closes by default are closed, also those that look for them. (Cargo
//! is tried by the command line's own tests, which run where a toolchain is.)
//!
//! Tests are called `BACKEND/UID/TOOL`. The home directory holds one of each secret that the tool knows; the script must end
//! well and print the same without walls and within. Beside it the secret itself must be readable without walls, and refused within.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, printed};

struct Tool {
    name: &'static str,
    /// Makes the home directory.
    home: &'static str,
    /// The file that must not be read, below the home directory.
    secret: &'static str,
    /// What is said of it: it is closed, or its directory shows only what is needed.
    refusal: &'static str,
    script: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "git",
        home: "printf '[user]\\nname=a\\nemail=a@b\\n[credential]\\nhelper=store\\n' > .gitconfig; echo https://u:p@h > .git-credentials",
        secret: ".git-credentials",
        refusal: "Permission denied",
        script: "git init -q .; git add -A; git commit -q --allow-empty -m x; git log --format=%s; git config user.name
            printf 'protocol=https\\nhost=other\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>&1 | grep -c 'could not read Username'
            rm -rf .git",
    },
    Tool {
        name: "ssh",
        home: "mkdir -m 700 .ssh; printf 'Host foo\\n HostName bar.example\\n' > .ssh/config; echo key > .ssh/id_rsa; echo pub > .ssh/id_rsa.pub
            echo 'bar.example ssh-ed25519 AAAA' > .ssh/known_hosts; chmod 600 .ssh/*",
        secret: ".ssh/id_rsa",
        refusal: "No such file",
        script: "ssh -F ~/.ssh/config -G foo | grep '^hostname'; cat ~/.ssh/id_rsa.pub; cut -d ' ' -f 1 ~/.ssh/known_hosts",
    },
    Tool {
        name: "npm",
        home: "echo '//registry.invalid/:_authToken=abc' > .npmrc",
        secret: ".npmrc",
        refusal: "Permission denied",
        script: "export npm_config_cache=$PWD/.cache npm_config_update_notifier=false
            npm config get registry; npm init -y > /dev/null; npm install --offline --no-audit --no-fund > /dev/null; ls package.json
            rm -rf .cache package.json package-lock.json node_modules",
    },
    Tool {
        name: "pip",
        home: "printf 'machine index.invalid login a password b\\n' > .netrc; chmod 600 .netrc; mkdir -p .config/pip
            printf '[global]\\nindex-url = https://a:b@index.invalid/simple\\n' > .config/pip/pip.conf",
        secret: ".netrc",
        refusal: "Permission denied",
        script: "python3 -m venv v; v/bin/pip --version | cut -d ' ' -f 1; v/bin/pip list --format freeze | grep -c pip=; rm -r v
            python3 -c 'import netrc, sys
try:
    netrc.netrc()
except PermissionError:
    pass'",
    },
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in [Backend::Namespace, Backend::Bwrap] {
        for uid in uids() {
            for tool in TOOLS {
                let name = format!("{}/{uid}/{}", backend.name(), tool.name);
                trials.push(Trial::test(name, move || Ok::<(), Failed>(check(backend, uid, tool)?)));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn check(backend: Backend, uid: u32, tool: &Tool) -> Result<(), String> {
    let walls = Walls::new(uid)?;
    let home = format!("set -e; cd ~; {}", tool.home);
    printed(&Walls::finish(&mut walls.plain(&["sh", "-c", &home]))?)?;
    let look = format!("cat ~/{} > /dev/null", tool.secret);
    let script = format!("set -e; {}", tool.script);
    let run = |backend, script: &str| {
        Walls::finish(&mut walls.confined(backend, Mode::WorkspaceWrite, &["sh", "-c", script]))
    };
    printed(&run(Backend::Unconfined, &look)?)?;
    let refused = run(backend, &look)?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    expect(said.contains(tool.refusal), format!("the secret was not refused: {said}"))?;
    let expected = printed(&run(Backend::Unconfined, &script)?)?;
    expect(!expected.is_empty(), "the control printed nothing")?;
    expect_equal(printed(&run(backend, &script)?)?, expected)
}
