//! Differential: what people run every day gives the same exit status and the same files under each backend as without
//! walls (field cases B001, B002, B004, B006 to B013, B017).
//!
//! Tests are called `WALLS/UID/TOOL`. Each tool's script runs in the same directory under every backend, and under Landlock with
//! protected names (`landlock-broker`: there the broker performs what changes names and metadata; W05, W08), first without walls:
//! that control must succeed, so a tool that is missing fails and names its package.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, own_uid, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A build on a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(300);

/// One tool's work.
struct Tool {
    name: &'static str,
    /// Programs that it needs, each with the apt package that has it.
    programs: &'static [(&'static str, &'static str)],
    /// Run once, without walls, in a directory outside the workspace that the variable `IN` names later.
    preparation: &'static str,
    /// Run in the empty workspace before each time, without walls.
    before: &'static str,
    /// Run in the workspace.
    script: &'static str,
    /// Parts of paths whose contents hold times or places of the run: only name and kind are compared.
    opaque: &'static [&'static str],
}

/// What stands around a script: a name, a backend, and further options.
const WALLS: [(&str, Backend, &[&str]); 4] = [
    ("namespace", Backend::Namespace, &[]),
    ("bwrap", Backend::Bwrap, &[]),
    ("landlock", Backend::Landlock, &[]),
    (BROKERED, Backend::Landlock, &["--protect", "default"]),
];

const BROKERED: &str = "landlock-broker";

/// Makes repositories, which no command may with protected names.
const MAKES_REPOSITORIES: &str = "git";

const TOOLS: &[Tool] = &[
    Tool {
        name: "git",
        programs: &[("git", "git")],
        before: "",
        preparation: "git init -q -b main source; cd source; echo one > a; mkdir d; echo two > d/b; git add .; git commit -qm first",
        script: "
            git clone -q file://$IN/source clone; cd clone
            echo more >> a; git add a; git commit -qm second
            echo stashed >> d/b; git stash -q; git stash apply -q; git checkout -q d/b
            git checkout -qb topic HEAD~1; echo other > c; git add c; git commit -qm third
            git checkout -q main; git merge -q -m merged topic
            git worktree add -q ../linked topic; cd ../linked; echo linked > e; git add e; git commit -qm fourth
            git -C ../clone gc -q; git status --short; git log --oneline > ../log",
        // What is known of files by their times and numbers, and what was packed by several threads.
        opaque: &["/index", "/pack/", "objects/info/commit-graph"],
    },
    Tool {
        name: "cargo-with-a-build-script",
        programs: &[("cc", "gcc")],
        before: "",
        preparation: "
            mkdir -p crate/src; cd crate
            printf '[package]\\nname = \"one\"\\nversion = \"0.1.0\"\\nedition = \"2024\"\\nbuild = \"build.rs\"\\n' > Cargo.toml
            echo 'fn main() { let out = std::env::var(\"OUT_DIR\").unwrap(); std::fs::write(out + \"/made.rs\", \"41 + 1\").unwrap(); }' > build.rs
            echo 'fn main() { println!(\"{}\", include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"))); }' > src/main.rs",
        script: "
            cp -r $IN/crate/. .; cargo build -q; ./target/debug/one > out; test $(cat out) = 42
            cargo test -q > /dev/null; mv target/debug/one one; rm -r target",
        opaque: &[],
    },
    Tool {
        name: "cargo-of-this-workspace",
        programs: &[("cc", "gcc")],
        // The checkout may lie below a directory that a private one covers.
        before: "",
        preparation: "cp -r $SOURCE/Cargo.toml $SOURCE/Cargo.lock $SOURCE/crates $SOURCE/xtask .",
        script: "cargo build -q --locked --manifest-path $IN/crates/policy/Cargo.toml; ls target/debug/*.rlib > built; rm -r target",
        opaque: &[],
    },
    Tool {
        name: "npm",
        programs: &[("npm", "npm"), ("node", "nodejs")],
        before: "",
        preparation: "
            mkdir package; echo 'module.exports = 42' > package/index.js
            echo '{\"name\":\"local\",\"version\":\"1.0.0\",\"main\":\"index.js\"}' > package/package.json
            tar czf local.tgz package",
        script: "
            export npm_config_cache=$PWD/.cache npm_config_update_notifier=false
            npm init -y > /dev/null; npm install --offline --no-audit --no-fund $IN/local.tgz > /dev/null
            node -p 'require(\"local\")' > out; test $(cat out) = 42; rm -r .cache",
        opaque: &[],
    },
    Tool {
        name: "pip",
        programs: &[("python3", "python3"), ("/usr/share/python-wheels", "python3-venv")],
        before: "",
        preparation: "
            python3 -c \"
import zipfile
with zipfile.ZipFile('local-1.0-py3-none-any.whl', 'w') as w:
    w.writestr('local.py', 'value = 42')
    w.writestr('local-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: local\\nVersion: 1.0\\n')
    w.writestr('local-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: hand\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    w.writestr('local-1.0.dist-info/RECORD', '')\"",
        script: "
            python3 -m venv env; env/bin/pip install -q --no-index --no-compile $IN/local-1.0-py3-none-any.whl
            env/bin/python -c 'import local; print(local.value)' > out; test $(cat out) = 42",
        opaque: &[".pyc"],
    },
    Tool {
        name: "make",
        programs: &[("make", "make"), ("cc", "gcc")],
        before: "",
        preparation: "",
        script: "
            printf 'int main(void) { return 0; }\\n' > a.c
            printf 'all: a b/c\\na: a.c\\n\\t$(CC) -o $@ $<\\nb/c: a\\n\\tmkdir -p b && ./a && echo made > $@\\n' > Makefile
            make -j2 > log; make -q",
        opaque: &[],
    },
    Tool {
        name: "tar",
        programs: &[("tar", "tar"), ("gzip", "gzip")],
        before: "",
        preparation: "mkdir -p tree/d; echo x > tree/d/f; chmod 750 tree/d; ln -s d/f tree/l; ln tree/d/f tree/h; tar czf tree.tgz tree",
        script: "tar xzf $IN/tree.tgz; tar cf again.tar --sort=name --mtime=@0 --owner=0 --group=0 tree; tar tvf again.tar > list",
        opaque: &[],
    },
    Tool {
        name: "rsync",
        programs: &[("rsync", "rsync")],
        before: "",
        preparation: "mkdir -p tree/d; echo x > tree/d/f; chmod 750 tree/d; ln -s d/f tree/l; ln tree/d/f tree/h",
        script: "rsync -aH $IN/tree/ copy/; rm copy/l; rsync -aH --delete $IN/tree/ copy/; rsync -an --itemize-changes $IN/tree/ copy/ > log",
        opaque: &[],
    },
    Tool {
        name: "temporary-files",
        programs: &[("mktemp", "coreutils")],
        before: "",
        preparation: "",
        script: "
            file=$(mktemp); echo x > $file; cp $file out; rm $file; dir=$(mktemp -d); rmdir $dir; test -d ${TMPDIR:-/tmp}
            python3 -c 'import tempfile; tempfile.TemporaryFile().write(b\"x\")'",
        opaque: &[],
    },
    Tool {
        // The shell puts what does not fit into a pipe into a temporary file.
        name: "long-here-document",
        programs: &[],
        before: "",
        preparation: "",
        script: "
            line=0123456789012345678901234567890123456789012345678901234567890123456789
            { echo 'cat <<END > out'; for i in $(seq 1000); do echo $line; done; echo END; } > script
            bash script; test $(wc -c < out) = 71000",
        opaque: &[],
    },
    Tool {
        name: "worker-processes",
        programs: &[("python3", "python3")],
        before: "",
        preparation: "",
        script: "
            cat > run.py <<'END'
import multiprocessing as m
if __name__ == '__main__':
    m.Semaphore()
    for method in ['fork', 'spawn', 'forkserver']:
        with m.get_context(method).Pool(2) as pool:
            print(method, pool.map(abs, [-1, 2]))
END
            python3 -B run.py > out",
        opaque: &[],
    },
    Tool {
        name: "terminals",
        programs: &[("script", "bsdutils"), ("python3", "python3")],
        before: "",
        preparation: "",
        script: "
            script -qec 'tty > /dev/null && echo inside > by-script' /dev/null > /dev/null
            python3 -c \"import pty, sys; sys.exit(pty.spawn(['sh', '-c', 'test -t 0 && echo inside > by-pty']))\" > /dev/null",
        opaque: &[],
    },
    Tool {
        name: "node-unix-sockets",
        programs: &[("node", "nodejs")],
        before: "",
        preparation: "",
        script: "
            cat > serve.js <<'END'
const net = require('net'), fs = require('fs'), os = require('os'), path = require('path');
const places = [process.cwd(), process.env.TMPDIR || os.tmpdir()];
const serve = i => {
    if (i == places.length) return fs.writeFileSync('out', 'served');
    const name = path.join(places[i], 'conformance.' + process.pid);
    const server = net.createServer(peer => peer.end('x'));
    server.listen(name, () => net.connect(name).on('data', () => {}).on('end', () => server.close(() => serve(i + 1))));
};
serve(0);
END
            node serve.js; test $(cat out) = served",
        opaque: &[],
    },
    Tool {
        name: "tmux",
        programs: &[("tmux", "tmux")],
        before: "",
        preparation: "",
        script: "
            export TERM=xterm; tmux -L conformance -f /dev/null new-session -d 'sleep 60'
            tmux -L conformance list-sessions -F '#{session_windows}' > out; tmux -L conformance kill-server",
        opaque: &[],
    },
    Tool {
        name: "scheduling",
        programs: &[("taskset", "util-linux"), ("ionice", "util-linux"), ("cc", "gcc"), ("python3", "python3")],
        before: "",
        preparation: "",
        script: "
            nice -n 5 true; taskset 1 true; ionice -c 3 true; chrt -b 0 true; (ulimit -c 0)
            python3 -c 'import os; os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)'
            echo '#include <stdio.h>
            int main(void) { int n = 0;
            #pragma omp parallel num_threads(2) reduction(+:n)
            n++; return printf(\"%d\", n) != 1; }' > threads.c
            cc -fopenmp -o threads threads.c; OMP_PROC_BIND=true ./threads > out; rm threads",
        opaque: &[],
    },
    Tool {
        name: "ssh-configuration",
        programs: &[("ssh", "openssh-client")],
        before: "",
        preparation: "",
        script: "ssh -G localhost > out",
        opaque: &[],
    },
    Tool {
        name: "git-in-a-repository",
        programs: &[("git", "git")],
        before: "git init -q -b main .; echo one > a; mkdir d; echo two > d/b; git add .; git commit -qm first",
        preparation: "",
        script: "
            echo more >> a; git add a; git commit -qm second; git mv d/b d/c; chmod +x a; git commit -qam third
            echo stashed >> d/c; git stash -q; git stash apply -q; git checkout -q d/c
            git checkout -qb topic HEAD~1; echo other > c; git add c; git commit -qm fourth
            git checkout -q main; git merge -q -m merged topic; git checkout -qb late HEAD~2; echo e > e; git add e
            git commit -qm fifth; git rebase -q main; git reset -q --hard HEAD~1; git clean -fdq; git tag -m t v1
            git gc -q; git fsck 2> /dev/null; git status --short; git log --oneline > log",
        opaque: &["/index", "/pack/", "objects/info/", "logs/"],
    },
    Tool {
        name: "cp-that-keeps-what-it-copies",
        programs: &[("cp", "coreutils")],
        before: "",
        preparation: "mkdir -p tree/d; echo x > tree/d/f; chmod 4750 tree/d/f; ln -s d/f tree/l; touch -d @1500000000 tree/d/f",
        script: "
            cp -p $IN/tree/d/f f; cp -a $IN/tree copy; cp -r --preserve=all $IN/tree again; cp -u f g; cp --backup f g
            stat -c '%a %Y %s' f copy/d/f again/d/f > list; cp -l f hard; cp -s $PWD/f soft; cp --reflink=auto f new",
        opaque: &[],
    },
    Tool {
        name: "install",
        programs: &[("install", "coreutils")],
        before: "",
        preparation: "echo x > f; touch -d @1500000000 f",
        script: "
            install -m 751 $IN/f a; install -d -m 700 d/e; install -D -m 640 $IN/f d/f/g; install -p $IN/f p; install -b -m 600 $IN/f a
            install -o $(id -u) -g $(id -g) $IN/f own; stat -c '%a %Y' p > list",
        opaque: &[],
    },
    Tool {
        name: "touch",
        programs: &[("touch", "coreutils")],
        before: "",
        preparation: "",
        script: "
            touch a; touch -d @1500000000 a b; touch -m -d @1400000000 b; touch -r a c; ln -s a l; touch -h -d @1300000000 l
            mkdir d; touch -d @1200000000 d; stat -c '%n %Y' a b c l d > list",
        opaque: &[],
    },
    Tool {
        name: "patch",
        programs: &[("patch", "patch"), ("diff", "diffutils")],
        before: "",
        preparation: "",
        script: "
            printf 'one\\ntwo\\n' > a; chmod 755 a; cp a b; echo three >> b; diff -u a b > one.diff || :; patch -s a one.diff; cmp a b; patch -s -R -b a one.diff
            printf -- '--- /dev/null\\n+++ new/file\\n@@ -0,0 +1 @@\\n+x\\n' > two.diff; patch -s -p0 < two.diff; test -s new/file",
        opaque: &[".diff"],
    },
    Tool {
        name: "cc",
        programs: &[("cc", "gcc"), ("ar", "binutils")],
        before: "",
        preparation: "",
        script: "
            echo 'int f(void) { return 42; }' > f.c; echo 'int f(void); int main(void) { return f() != 42; }' > m.c
            cc -c f.c m.c; ar rcsD libf.a f.o; ranlib -D libf.a; cc -o m m.o libf.a; ./m; strip m; ./m; cc -shared -fPIC -o libf.so f.c",
        opaque: &[],
    },
    Tool {
        name: "chmod-and-chown",
        programs: &[("chmod", "coreutils")],
        before: "",
        preparation: "",
        script: "
            mkdir -p d/e; echo x > d/e/f; chmod 640 d/e/f; chmod -R u+X,go-rwx d; chmod g+s d; chmod +t d/e; chown -R $(id -u):$(id -g) d
            ln -s d/e/f l; chgrp -h $(id -g) l; mkdir -m 711 m; mkfifo -m 600 p; umask 077; echo x > g; chmod --reference=d/e/f g",
        opaque: &[],
    },
    Tool {
        name: "editing-in-place",
        programs: &[("sed", "sed"), ("perl", "perl")],
        before: "",
        preparation: "",
        script: "
            echo one > a; chmod 751 a; sed -i s/one/two/ a; sed -i.bak s/two/three/ a; perl -pi -e 's/three/four/' a; test $(cat a) = four
            truncate -s 100 b; fallocate -l 4096 c 2> /dev/null || truncate -s 4096 c; dd if=a of=b conv=notrunc status=none; sort -o a a",
        opaque: &[],
    },
    Tool {
        name: "compressors",
        programs: &[("gzip", "gzip"), ("xz", "xz-utils")],
        before: "",
        preparation: "",
        script: "
            for z in gzip xz bzip2; do echo x > $z; chmod 640 $z; touch -d @1500000000 $z; command -v $z > /dev/null || continue; $z $z
            $z -d $z.*; stat -c '%a %Y' $z >> list; done",
        opaque: &[],
    },
    Tool {
        name: "zip",
        programs: &[("zip", "zip"), ("unzip", "unzip")],
        before: "",
        preparation: "mkdir -p tree/d; echo x > tree/d/f; chmod 750 tree/d; touch -d @1500000000 tree/d/f tree/d tree; zip -qrX tree.zip tree",
        script: "unzip -q $IN/tree.zip; stat -c '%a %Y' tree/d/f > list; zip -qrX again.zip tree; unzip -qo again.zip",
        opaque: &["again.zip"],
    },
    Tool {
        name: "copies-by-python",
        programs: &[("python3", "python3")],
        before: "",
        preparation: "",
        script: "
            cat > run.py <<'END'
import os, shutil, tempfile
open('a', 'w').write('x'); os.chmod('a', 0o751); os.utime('a', (1, 2)); os.setxattr('a', 'user.b', b'c')
shutil.copy2('a', 'b'); shutil.copytree('.', 'tree', ignore=lambda *_: ['tree'], symlinks=True); shutil.move('b', 'c')
fd = os.open('a', os.O_RDWR); os.fchmod(fd, 0o640); os.ftruncate(fd, 9); os.utime(fd, (3, 4)); os.close(fd)
with tempfile.NamedTemporaryFile(dir='.', delete=False) as f: f.write(b'y'); name = f.name
os.replace(name, 'd'); os.link('d', 'e'); os.symlink('e', 'f'); os.removedirs(os.makedirs('g/h') or 'g/h')
print(oct(os.stat('c').st_mode), os.stat('c').st_mtime, os.getxattr('c', 'user.b'))
END
            python3 -B run.py > out",
        opaque: &[],
    },
    Tool {
        name: "moving-and-removing",
        programs: &[("find", "findutils")],
        before: "",
        preparation: "",
        script: "
            mkdir -p a/b/c; for i in $(seq 50); do echo $i > a/b/$i; done; mv a/b a/d; mv -T a/d e; ln e/1 e/one; ln -sfn e/2 two; mv -n e/3 e/4
            find e -name '1*' -delete; rm -f e/5 none; rmdir e/c; cp -r e f; rm -r e; mktemp -d -p . x.XXXXXX > /dev/null; rmdir x.*; tee g < f/4",
        opaque: &[],
    },
    Tool {
        name: "ssh-keys",
        programs: &[("ssh-keygen", "openssh-client")],
        before: "",
        preparation: "",
        script: "ssh-keygen -q -t ed25519 -N '' -f key; test $(stat -c %a key) = 600; ssh-keygen -y -f key > again",
        opaque: &["key", "again"],
    },
];

/// A Rust toolchain, and a home of Cargo with the packages, which the tests' users can read.
struct Toolchain {
    sysroot: PathBuf,
    home: PathBuf,
    /// Made for this and removed at the end.
    copy: Option<PathBuf>,
}

impl Toolchain {
    /// Cargo's own directory, if this process can read it.
    fn source() -> Option<PathBuf> {
        let cargo = std::fs::canonicalize(env!("CARGO")).ok()?;
        Some(cargo.parent()?.parent()?.to_path_buf())
    }

    fn new() -> Result<Toolchain, String> {
        let sysroot = Toolchain::source().ok_or("no toolchain can be read")?;
        let user = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cargo");
        let home = std::env::var_os("CARGO_HOME").map_or_else(user, PathBuf::from);
        if own_uid() != 0 {
            return Ok(Toolchain { sysroot, home, copy: None });
        }
        let copy = PathBuf::from(format!("/var/lib/pinfold-test-toolchain.{}", std::process::id()));
        // Names for the same files where that is possible: a toolchain is large. What Cargo writes is copied.
        let script = "
            set -e; mkdir -p $2/home/registry; cp -al $1/bin $1/lib $2/ 2>/dev/null || cp -a $1/bin $1/lib $2/
            cp -a $3/registry/index $3/registry/cache $2/home/registry/
            cp -al $3/registry/src $2/home/registry/ 2>/dev/null || cp -a $3/registry/src $2/home/registry/
            chmod -R go+rX $2/home/registry/index $2/home/registry/cache; chmod 755 $2 $2/home";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args([&sysroot, &copy, &home]);
        let toolchain = Toolchain { sysroot: copy.clone(), home: copy.join("home"), copy: Some(copy) };
        let output = command.output().map_err(|e| e.to_string())?;
        let told = written(&output.stderr);
        expect(output.status.success(), format!("the toolchain could not be copied: {told}"))?;
        Ok(toolchain)
    }
}

impl Drop for Toolchain {
    fn drop(&mut self) {
        if let Some(dir) = &self.copy
            && let Err(error) = std::fs::remove_dir_all(dir)
        {
            eprintln!("could not remove {}: {error}", dir.display());
        }
    }
}

type SharedToolchain = Arc<OnceLock<Result<Toolchain, String>>>;

/// What a run of a script came to.
#[derive(Clone, Debug)]
struct Came {
    code: Option<i32>,
    told: String,
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

type Shared = OnceLock<Result<BTreeMap<&'static str, Came>, String>>;

fn main() {
    let arguments = Arguments::from_args();
    let toolchain = SharedToolchain::default();
    let mut trials = Vec::new();
    for uid in uids() {
        let shared: Vec<_> = TOOLS.iter().map(|_| Arc::new(Shared::default())).collect();
        // All tools under one backend, then under the next: neighbours do not wait for each other.
        for (walls, backend, _) in WALLS {
            for (tool, shared) in TOOLS.iter().zip(&shared) {
                if walls == BROKERED && tool.name == MAKES_REPOSITORIES {
                    continue;
                }
                let (shared, toolchain) = (Arc::clone(shared), Arc::clone(&toolchain));
                let results = move || shared.get_or_init(|| run_everywhere(tool, uid, &toolchain)).clone();
                let name = format!("{walls}/{uid}/{}", tool.name);
                let lacks = tool.name.starts_with("cargo-") && Toolchain::source().is_none();
                let trial = Trial::test(name, move || Ok::<(), Failed>(compare(tool, (walls, backend), &results()?)?));
                let kind = if lacks { "no Rust toolchain that this user can read" } else { "" };
                trials.push(trial.with_kind(kind).with_ignored_flag(lacks));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(toolchain);
    conclusion.exit();
}

/// The tool's script without walls and under each backend, always in the same directory.
fn run_everywhere(
    tool: &'static Tool,
    uid: u32,
    toolchain: &OnceLock<Result<Toolchain, String>>,
) -> Result<BTreeMap<&'static str, Came>, String> {
    for (program, package) in tool.programs {
        let found = ["", "/usr/local/bin/", "/usr/bin/", "/bin/"].iter().any(|dir| {
            let path = PathBuf::from(format!("{dir}{program}"));
            path.is_absolute() && path.exists()
        });
        expect(found, format!("{program} is missing: apt-get install {package}"))?;
    }
    let walls = Walls::new(uid)?;
    let toolchain = if tool.name.starts_with("cargo-") {
        let made = toolchain.get_or_init(Toolchain::new).as_ref();
        Some(made.map_err(Clone::clone)?)
    } else {
        None
    };
    let input = walls.fixture.out();
    let mut preparation = walls.plain(&["/bin/bash", "-euc", tool.preparation]);
    surround(&mut preparation, &input, toolchain);
    let finished = Walls::finish(preparation.current_dir(&input))?;
    expect(finished.status.success(), format!("preparation: {}", written(&finished.stderr)))?;
    let mut results = BTreeMap::new();
    let unconfined: (&str, Backend, &[&str]) = ("unconfined", Backend::Unconfined, &[]);
    for (name, backend, options) in std::iter::once(unconfined).chain(WALLS) {
        if name == BROKERED && tool.name == MAKES_REPOSITORIES {
            continue;
        }
        let mut before = walls.plain(&["/bin/bash", "-euc", tool.before]);
        surround(&mut before, &input, toolchain);
        let finished = Walls::finish(&mut before)?;
        expect(finished.status.success(), format!("before: {}", written(&finished.stderr)))?;
        let mut words = match backend {
            Backend::Unconfined => Vec::new(),
            backend => walls.run_words(Some(backend), Mode::WorkspaceWrite),
        };
        // The options stand before the dashes.
        let dashes = words.pop();
        words.extend(options.iter().map(|word| (*word).to_owned()).chain(dashes));
        words.extend(["/bin/bash", "-euc", tool.script].map(str::to_owned));
        let mut command = walls.plain(&words);
        surround(&mut command, &input, toolchain);
        let finished = pinfold_conformance::judge::output_within(&mut command, LIMIT).map_err(|e| e.to_string())?;
        let told = format!("{}{}", written(&finished.stdout), written(&finished.stderr));
        let mut files = BTreeMap::new();
        look(&walls.fixture.ws(), Path::new(""), tool, &mut files).map_err(|e| format!("look: {e}"))?;
        results.insert(name, Came { code: finished.status.code(), told, files });
        empty(&walls.fixture.ws()).map_err(|e| format!("empty the workspace: {e}"))?;
        expect_equal(walls.litter(), Vec::new())?;
    }
    Ok(results)
}

/// The environment of a preparation and a script: everything that is decided by chance elsewhere is fixed.
fn surround(command: &mut Command, input: &Path, toolchain: Option<&Toolchain>) {
    command.env("IN", input).env("SOURCE", Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).env("CC", "cc");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "A").env(format!("GIT_{who}_EMAIL"), "a@example.org");
        command.env(format!("GIT_{who}_DATE"), "1600000000 +0000");
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("PYTHONDONTWRITEBYTECODE", "1").env("SOURCE_DATE_EPOCH", "1600000000");
    if let Some(Toolchain { sysroot, home, .. }) = toolchain {
        command.env("PATH", format!("{}/bin:/usr/local/bin:/usr/bin:/bin", sysroot.display()));
        command.env("CARGO_HOME", home).env("CARGO_NET_OFFLINE", "true").env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_TARGET_DIR", "target").env("CARGO_PROFILE_DEV_DEBUG", "0");
    }
}

fn compare(tool: &Tool, walls: (&str, Backend), results: &BTreeMap<&'static str, Came>) -> Result<(), String> {
    let (walls, backend) = walls;
    let (control, got) = (&results["unconfined"], &results[walls]);
    expect(control.code == Some(0), format!("without walls: {:?}: {}", control.code, control.told))?;
    expect(!control.files.is_empty(), "without walls nothing was made")?;
    if tool.name == "worker-processes" && backend == Backend::Landlock {
        // `sem_open` wants /dev/shm by name. Without namespaces there is no private one, and the host's is shared with
        // every process: it stays closed, and the program hears so.
        return expect(got.code == Some(1) && got.told.contains("PermissionError: [Errno 13]"), &got.told);
    }
    expect(got.code == Some(0), format!("{:?}: {}", got.code, got.told))?;
    let names = |of: &Came| of.files.keys().cloned().collect::<BTreeSet<_>>();
    let (ours, theirs) = (names(got), names(control));
    let odd: Vec<_> = ours.symmetric_difference(&theirs).collect();
    expect(odd.is_empty(), format!("only on one side: {odd:?}"))?;
    let other: Vec<_> =
        got.files.iter().filter(|(path, file)| control.files[*path] != **file).map(|(p, _)| p).collect();
    expect(other.is_empty(), format!("different: {other:?}"))
}

/// Kind, mode and content of everything below a directory.
fn look(root: &Path, below: &Path, tool: &Tool, files: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let relative = below.join(entry?.file_name());
        let path = root.join(&relative);
        let metadata = std::fs::symlink_metadata(&path)?;
        let name = text(&relative);
        let is_opaque = tool.opaque.iter().any(|part| name.contains(part));
        let content = if metadata.is_symlink() {
            std::fs::read_link(&path)?.as_os_str().as_bytes().to_vec()
        } else if metadata.is_file() && !is_opaque {
            std::fs::read(&path)?
        } else {
            Vec::new()
        };
        files.insert(relative.clone(), (metadata.mode(), content));
        if metadata.is_dir() {
            look(root, &relative, tool, files)?;
        }
    }
    Ok(())
}

fn empty(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.symlink_metadata()?.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}
