//! ssh inside a user namespace: files of root's that its configuration includes seem to be nobody's there, and ssh refuses
//! such files. `docs/decisions/0013`.
//!
//! The configuration of a distribution is imitated over `/etc` in a mount namespace of the test's own, so the test needs root;
//! what it starts is an ordinary user's.

use pinfold_conformance::start::{Backend, Mode, own_uid};
use pinfold_conformance::walls::{Walls, text, written};
use std::process::Command;

const USER: u32 = 1000;

/// Fedora's shape: a file in `ssh_config.d` that includes another through a link. The user has an account.
const IMITATE: &str = "
set -e
mount -t tmpfs none /etc/ssh
mkdir /etc/ssh/ssh_config.d /etc/ssh/back-ends
echo 'Include /etc/ssh/ssh_config.d/*.conf' > /etc/ssh/ssh_config
printf 'Include /etc/ssh/back-ends/openssh.config\\nHost there\\n  Port 2222\\n' > /etc/ssh/ssh_config.d/50-there.conf
echo 'ConnectTimeout 77' > /etc/ssh/back-ends/policy.txt
ln -s policy.txt /etc/ssh/back-ends/openssh.config
printf 'tester:x:1000:1000::/nonexistent:/bin/sh\\n' | cat - /etc/passwd > /etc/ssh/passwd
mount --bind /etc/ssh/passwd /etc/passwd
exec setpriv --reuid 1000 --regid 1000 --clear-groups \"$@\"
";

fn imitated(walls: &Walls, argv: &[String]) -> (Option<i32>, String) {
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "/bin/sh", "-c", IMITATE, "sh"]).args(argv);
    command.current_dir(walls.fixture.ws()).env("XDG_RUNTIME_DIR", walls.runtime()).env("HOME", walls.home());
    let finished = Walls::finish(&mut command).expect("it ends");
    let output = format!("{}{}", written(&finished.stdout), written(&finished.stderr));
    (finished.status.code(), output)
}

#[test]
fn ssh_reads_its_configuration_as_an_ordinary_user() {
    if own_uid() != 0 {
        // Covered by the run as root: only root can put files of root's where ssh looks for them.
        return;
    }
    let walls = Walls::new(USER).expect("a fixture");
    let ssh = ["ssh", "-G", "there"].map(str::to_owned);
    let under = |words: Vec<String>| imitated(&walls, &[words, ssh.to_vec()].concat());
    let understood = |(code, output): &(Option<i32>, String)| {
        *code == Some(0) && output.contains("\nport 2222\n") && output.contains("\nconnecttimeout 77\n")
    };
    let outside = under(Vec::new());
    assert!(understood(&outside), "{outside:?}");
    // The same namespaces without copies: ssh refuses.
    let launcher = text(&walls.fixture.bin().join("pinfold-run"));
    let bare = ["--spec", "1", "--wall", "namespace", "--landlock", "0", "--"].map(str::to_owned);
    let refused = under([vec![launcher], bare.to_vec()].concat());
    assert!(refused.1.contains("Bad owner or permissions on /etc/ssh/ssh_config.d/50-there.conf"), "{refused:?}");
    for mode in [Mode::ReadOnly, Mode::WorkspaceWrite] {
        let inside = under(walls.run_words(Some(Backend::Namespace), mode));
        assert!(understood(&inside), "{inside:?}");
    }
}

#[test]
fn a_file_of_somebody_else_stays_refused() {
    if own_uid() != 0 {
        return;
    }
    let walls = Walls::new(USER).expect("a fixture");
    let argv =
        [walls.run_words(Some(Backend::Namespace), Mode::ReadOnly), ["ssh", "-G", "there"].map(str::to_owned).to_vec()];
    for spoil in ["chown 4321 /etc/ssh/ssh_config.d/50-there.conf", "chmod 666 /etc/ssh/ssh_config.d/50-there.conf"] {
        let script = IMITATE.replace("exec setpriv", &format!("{spoil}\nexec setpriv"));
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "/bin/sh", "-c", &script, "sh"]).args(argv.concat());
        command.current_dir(walls.fixture.ws()).env("XDG_RUNTIME_DIR", walls.runtime()).env("HOME", walls.home());
        let finished = Walls::finish(&mut command).expect("it ends");
        assert!(written(&finished.stderr).contains("Bad owner or permissions"), "{spoil}: {finished:?}");
    }
}
