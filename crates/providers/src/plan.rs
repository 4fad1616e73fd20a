//! What every mechanism's plan is made from, and what all plans say alike. Pure: values in, words out.

use crate::asks::AskWords;
use crate::closed::Closed;
use crate::launcher::push;
use crate::limits::Bounds;
use crate::roots::PinnedRoot;
use pinfold_policy::quote::quote;
use pinfold_policy::{ConfinedMode, Guarantee, GuaranteeReport, Layer, Network, Strength, TempMount, TempView};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the launcher reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatusTo {
    Nowhere,
    Descriptor(i32),
    File(PathBuf),
}

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) mode: ConfinedMode,
    /// Writable roots, parents first; empty under `read-only`.
    pub(crate) roots: Vec<PinnedRoot>,
    /// Directories inside a root that lead to another root or to a denied path: as mounts of their own they cannot be
    /// renamed. Empty for mechanisms without mounts.
    pub(crate) between: Vec<PinnedRoot>,
    /// The Landlock ABI that the probe saw; 0 for none.
    pub(crate) landlock_abi: u32,
    /// The host's shared temp directories, physical: what `/tmp` and `/var/tmp` really are.
    pub(crate) shared_temps: Vec<PathBuf>,
    /// A private temp area, for mechanisms that cannot make one themselves.
    pub(crate) temp: Option<PinnedRoot>,
    /// What a session's calls see instead of the host's shared temp directories: each with the directory that is there.
    pub(crate) session_temps: Vec<(PathBuf, PinnedRoot)>,
    /// The directory of ours in which all sessions have theirs: hidden from a session's calls.
    pub(crate) other_temps: Option<crate::closed::Cover>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) status: StatusTo,
    /// How the broker asks about refusals.
    pub(crate) asks: Option<AskWords>,
    /// Whether the launcher stays beside the command.
    pub(crate) supervise: bool,
    /// Whether a terminal may be among the standard streams.
    pub(crate) terminal: bool,
    /// Whether the broker tells what is refused, protected or not.
    pub(crate) observed: bool,
    /// What is closed beyond the mode.
    pub(crate) closed: Closed,
    /// What the call may use up.
    pub(crate) bounds: Bounds,
    /// Files that are covered by copies of the user's own.
    pub(crate) own_copies: Vec<PathBuf>,
    /// Device nodes of the host that can be opened for reading and act on it, for mechanisms without mounts.
    pub(crate) devices: Vec<PathBuf>,
}

impl Request {
    /// Whether the broker answers for names.
    pub(crate) fn is_brokered(&self) -> bool {
        self.observed || (self.writes() && self.closed.protected.is_some())
    }

    /// Whether it also answers for connections: not for a call that is only observed, which is to come to the same as without.
    pub(crate) fn connects_by_broker(&self) -> bool {
        self.writes() && self.closed.protected.is_some() && self.closed.sockets.is_some()
    }

    /// Where the command's own temp files are.
    pub(crate) fn own_temps(&self, has_mounts: bool) -> Vec<PathBuf> {
        if has_mounts {
            self.covered().into_iter().chain(["/dev/shm".into()]).collect()
        } else {
            self.temp.iter().map(|temp| temp.path.clone()).collect()
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.mode == ConfinedMode::WorkspaceWrite
    }

    /// The shared temp directories that a private one covers: not those that the policy opens themselves.
    pub(crate) fn covered(&self) -> Vec<PathBuf> {
        if !self.writes() {
            return Vec::new();
        }
        let opened = |temp: &Path| self.roots.iter().any(|root| temp.starts_with(&root.path));
        self.shared_temps.iter().filter(|temp| !opened(temp)).cloned().collect()
    }

    /// The covered directories that are empty at first, and gone after the call.
    pub(crate) fn fresh(&self) -> Vec<PathBuf> {
        let mut covered = self.covered();
        covered.retain(|temp| !self.session_temps.iter().any(|(at, _)| at == temp));
        covered
    }

    /// Those at which a session's own directory is seen.
    pub(crate) fn lasting(&self) -> Vec<&(PathBuf, PinnedRoot)> {
        let covered = self.covered();
        self.session_temps.iter().filter(|(at, _)| covered.contains(at)).collect()
    }

    /// Whether a path is hidden inside because a private temp directory covers it.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        let below = |place: &Path| path.starts_with(place);
        self.covered().iter().any(|temp| below(temp)) && !self.roots.iter().any(|root| below(&root.path))
    }

    /// Whether a path is out of sight inside for any reason.
    pub(crate) fn out_of_sight(&self, path: &Path) -> bool {
        self.hides(path)
            || self.closed.denied.hollowed(path).is_some()
            || self.closed.sockets.as_ref().is_some_and(|walls| walls.hollowed(path))
    }

    /// Whether a wall against reading stands at a path or above it.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        let sockets = self.closed.sockets.as_ref();
        let mut covers = self.closed.denied.covers.iter().chain(sockets.into_iter().flat_map(|walls| &walls.covers));
        covers.any(|cover| path.starts_with(&cover.path))
    }

    /// Every place that is attached writable, parents first.
    pub(crate) fn attached(&self) -> Vec<&PinnedRoot> {
        let mut all: Vec<_> = self.roots.iter().chain(&self.between).collect();
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }

    /// Covers that need a wall: those that nothing else hides already.
    pub(crate) fn walls(&self) -> Vec<&crate::closed::Cover> {
        let sockets = self.closed.sockets.iter().flat_map(|walls| &walls.covers);
        let sockets = sockets.filter(|cover| self.closed.denied.closes(&cover.path).is_none());
        let denied = self.closed.denied.covers.iter().filter(|cover| !self.out_of_sight(&cover.path));
        let temps = self.other_temps.iter().filter(|cover| !self.out_of_sight(&cover.path));
        let temps = temps.filter(|cover| self.closed.denied.closes(&cover.path).is_none());
        denied.chain(sockets).chain(temps).collect()
    }

    /// Directories that appear empty but for what is kept.
    pub(crate) fn hollows(&self) -> Vec<&Path> {
        let denied = &self.closed.denied;
        let sockets = self.closed.sockets.iter().flat_map(|walls| &walls.hollows);
        let sockets = sockets.filter(|hollow| denied.closes(hollow).is_none() && !denied.hollows.contains(hollow));
        // Denied ones that a directory of sockets hides need no wall of their own, nor do those in a private temp.
        let seen = denied.hollows.iter().filter(|hollow| !self.out_of_sight(hollow));
        seen.chain(sockets).map(PathBuf::as_path).collect()
    }

    /// What stays visible in them, or in a private temp directory.
    pub(crate) fn keeps(&self) -> Vec<&Path> {
        let denied = &self.closed.denied;
        let sockets = self.closed.sockets.iter().flat_map(|walls| &walls.keeps);
        let sockets = sockets.filter(|kept| denied.closes(kept).is_none());
        let seen = denied.keeps.iter().filter(|kept| !self.hides(kept));
        let mut keeps: Vec<&Path> = seen.chain(sockets).map(PathBuf::as_path).collect();
        keeps.sort();
        keeps.dedup();
        keeps
    }

    /// `--write` for each root.
    pub(crate) fn push_roots(&self, words: &mut Vec<OsString>) {
        self.attached().into_iter().for_each(|root| push_root(words, root));
    }

    /// Environment and bounds, and last what belongs to one call: the same in every plan.
    pub(crate) fn push_rest(&self, words: &mut Vec<OsString>, temp: Option<&Path>) {
        if let Some(temp) = temp {
            // tmux keeps its sockets in a place of its own, or else in /tmp.
            for name in ["TMPDIR", "TMP", "TEMP", "TMUX_TMPDIR"] {
                push_set(words, &name.into(), &temp.into());
            }
            // zsh takes this as the beginning of a file name, not as a directory.
            push_set(words, &"TMPPREFIX".into(), &temp.join("zsh").into());
        }
        for pattern in &self.closed.unset {
            push(words, &["--unset", pattern]);
        }
        for (kind, most) in &self.bounds.words {
            push(words, &["--limit", kind, &most.to_string()]);
        }
        words.extend(self.own_words());
    }

    /// Working directory and status, which two calls with the same walls do not share.
    pub(crate) fn own_words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if let Some(cwd) = &self.cwd {
            push(&mut words, &["--cwd".as_ref(), cwd.as_os_str()]);
        }
        match &self.status {
            StatusTo::Nowhere => {}
            StatusTo::Descriptor(number) => push(&mut words, &["--status-fd", &number.to_string()]),
            StatusTo::File(path) => push(&mut words, &["--status-file".as_ref(), path.as_os_str()]),
        }
        words
    }
}

pub(crate) fn push_root(words: &mut Vec<OsString>, root: &PinnedRoot) {
    push(words, &["--write".into(), root.identity(), root.path.clone().into()]);
}

fn push_set(words: &mut Vec<OsString>, name: &OsString, value: &OsString) {
    let mut setting = name.clone();
    setting.push("=");
    setting.push(value);
    push(words, &["--set".into(), setting]);
}

/// What a mechanism's probe showed by acts on this host: each is true if the act was refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Creating files outside, also by a descendant.
    pub(crate) content: bool,
    /// Changing a mode outside.
    pub(crate) metadata: bool,
    /// Creating files outside through a symbolic link in a writable place.
    pub(crate) links: bool,
    /// Creating files outside through a directory descriptor that was open before.
    pub(crate) inherited: bool,
    /// Creating files outside through the root directory of a process outside.
    pub(crate) process_root: bool,
    /// With the broker: creating and changing what is protected in a writable place.
    pub(crate) protected: bool,
    /// With the broker and without a mount tree: changing a mode outside.
    pub(crate) governed: bool,
}

/// What a mechanism states about a call.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) temp: TempView,
    pub(crate) guarantees: Vec<GuaranteeReport>,
    pub(crate) notes: Vec<String>,
}

/// Collects lines.
pub(crate) struct Lines(pub(crate) Vec<GuaranteeReport>);

const OWN_CHECK: &str = "Shown by the launcher's own checks while it raises the walls, not by an act from inside.";

impl Lines {
    /// Begins with what a call has to ask for. `wall` is what a mechanism hides paths by, or its main wall.
    pub(crate) fn new(request: &Request, wall: Layer) -> Self {
        let mut lines = Self(Vec::new());
        lines.protected(request, wall);
        lines.denied_reads(request, wall);
        lines.network(request, wall);
        lines
    }

    /// What is protected; whether an act showed it is added by [`Lines::brokered`].
    fn protected(&mut self, request: &Request, wall: Layer) {
        if request.closed.protected.is_none() {
            self.not_asked(Guarantee::ProtectedPaths, "Names inside a writable root are as writable as the root.");
        } else if !request.writes() {
            self.checked(Guarantee::ProtectedPaths, &[wall]);
            self.note(Guarantee::ProtectedPaths, "Nothing is writable in this mode.");
        }
    }

    /// What the broker keeps for a call that asks for protected names.
    pub(crate) fn brokered(&mut self, request: &Request, proof: Proof) -> &mut Self {
        // Where nothing is writable, nothing of it needs the broker.
        let Some(protected) = request.closed.protected.as_ref().filter(|_| request.writes()) else { return self };
        self.shown(Guarantee::ProtectedPaths, &[Layer::Broker], proof.protected);
        for note in protected.notes() {
            self.note(Guarantee::ProtectedPaths, &note);
        }
        self
    }

    fn network(&mut self, request: &Request, wall: Layer) {
        let layers: &[Layer] = match (wall, request.closed.network) {
            (_, Network::Open) => {
                self.not_asked(Guarantee::Network, "The network is open.");
                return;
            }
            (Layer::MountTree, Network::Private) => &[Layer::Namespace],
            (Layer::MountTree, Network::Off) => &[Layer::Namespace, Layer::Seccomp],
            (Layer::Bubblewrap, Network::Private) => &[Layer::Bubblewrap],
            (Layer::Bubblewrap, Network::Off) => &[Layer::Bubblewrap, Layer::Seccomp],
            (Layer::Landlock, Network::Off) => &[Layer::Seccomp],
            _ => {
                self.none(Guarantee::Network, "This mechanism cannot close the network.");
                return;
            }
        };
        self.checked(Guarantee::Network, layers);
        let what = match request.closed.network {
            Network::Off => "No sockets but unix ones can be made.",
            _ => "A loopback device of its own is all there is.",
        };
        self.note(Guarantee::Network, what);
        if request.closed.sockets.is_none() {
            let note =
                "A program outside that listens on a unix socket can be asked to use the network: see sockets-unix.";
            self.note(Guarantee::Network, note);
        }
    }

    fn denied_reads(&mut self, request: &Request, wall: Layer) {
        let denied = &request.closed.denied;
        if denied.is_empty() {
            self.not_asked(Guarantee::ReadDeny, "Reading is open wherever the user may read.");
            return;
        }
        let files = denied.covers.iter().filter(|cover| !cover.directory).map(|cover| cover.path.as_path());
        let exceptions = [
            ("Can be read once it exists:", paths(&denied.absent)),
            ("Can be read once it exists, and the command itself can make it:", paths(&denied.absent_inside)),
            ("Can be read by another name (a hard link):", paths(&denied.linked)),
            ("Holds too much to look for files with other names (hard links):", paths(&denied.unsearched)),
            (
                "Can be read if a process outside replaces the file while the command runs (deny its directory instead):",
                files.collect(),
            ),
            ("Matched at the start only; what comes to match later can be read:", paths(&denied.snapshots)),
            ("A link that matches and leads elsewhere was not followed:", paths(&denied.leads_out)),
            (
                "Denied by way of a link that the command can replace, so that a later call denies something else (deny \
                 what it leads to instead):",
                paths(&denied.by_link),
            ),
            ("Nobody could look for matches in:", paths(&denied.unseen)),
            ("Not closed, because a command needs it or it cannot be examined:", paths(&denied.skipped)),
        ];
        if exceptions.iter().all(|(_, paths)| paths.is_empty()) && !denied.mounts_unknown {
            self.checked(Guarantee::ReadDeny, &[wall]);
        } else {
            self.0.push(GuaranteeReport::new(Guarantee::ReadDeny, Strength::Partial, &[wall], false));
        }
        let covers = denied.covers.iter().map(|cover| cover.path.as_path());
        let remarks = [
            ("Closed for reading:", covers.chain(denied.hollows.iter().map(PathBuf::as_path)).collect()),
            ("Readable in them all the same, as they were at the start:", paths(&denied.keeps)),
            ("Closed with its directory, although it was to stay readable:", paths(&denied.not_kept)),
            ("Out of reach by the permissions of a directory above:", paths(&denied.unreachable)),
        ];
        for (what, paths) in exceptions.iter().chain(&remarks) {
            if !paths.is_empty() {
                self.note(Guarantee::ReadDeny, &format!("{what} {}.", named(paths)));
            }
        }
        self.note(
            Guarantee::ReadDeny,
            "A hard link made before is another path; so is a file system that shows another one (overlayfs).",
        );
    }

    /// A promise that the canary showed.
    pub(crate) fn shown(&mut self, guarantee: Guarantee, layers: &[Layer], shown: bool) -> &mut Self {
        self.0.push(GuaranteeReport::new(guarantee, Strength::Enforced, layers, shown));
        self
    }

    /// A promise that the launcher checks itself before it executes anything.
    pub(crate) fn checked(&mut self, guarantee: Guarantee, layers: &[Layer]) -> &mut Self {
        self.0.push(GuaranteeReport::new(guarantee, Strength::Enforced, layers, true).with_note(OWN_CHECK));
        self
    }

    pub(crate) fn partial(&mut self, guarantee: Guarantee, layers: &[Layer], note: &str) -> &mut Self {
        self.0.push(GuaranteeReport::new(guarantee, Strength::Partial, layers, false).with_note(note));
        self
    }

    pub(crate) fn none(&mut self, guarantee: Guarantee, note: &str) -> &mut Self {
        self.0.push(GuaranteeReport::new(guarantee, Strength::None, &[], false).with_note(note));
        self
    }

    pub(crate) fn not_asked(&mut self, guarantee: Guarantee, note: &str) -> &mut Self {
        self.0.push(GuaranteeReport::new(guarantee, Strength::NotAsked, &[], false).with_note(note));
        self
    }

    /// Adds a remark to the line of a promise.
    pub(crate) fn note(&mut self, guarantee: Guarantee, note: &str) -> &mut Self {
        self.0.iter_mut().filter(|line| line.guarantee == guarantee).for_each(|line| line.notes.push(note.to_owned()));
        self
    }

    /// The terminal: fully out of reach unless one is handed over.
    pub(crate) fn terminal(&mut self, passed: bool, layers: &[Layer]) -> &mut Self {
        if passed {
            let note = "Input cannot be fed to a terminal, but the settings of one that is passed on as a standard \
                        stream can be changed.";
            self.partial(Guarantee::Terminal, layers, note)
        } else {
            self.checked(Guarantee::Terminal, layers)
        }
    }

    /// Signals, and the one that a terminal sends for whoever changes its size.
    pub(crate) fn signals(&mut self, terminal: bool, layers: &[Layer]) -> &mut Self {
        if terminal {
            let note = "No signal but those of a terminal that is passed on as a standard stream: its size sends SIGWINCH, and its \
                        settings decide for which key and which background output others are signalled.";
            self.partial(Guarantee::SignalsOut, layers, note)
        } else {
            self.checked(Guarantee::SignalsOut, layers)
        }
    }
}

pub(crate) fn paths(owned: &[PathBuf]) -> Vec<&Path> {
    owned.iter().map(PathBuf::as_path).collect()
}

/// Paths as a list in a sentence; a long one is cut.
pub(crate) fn named(paths: &[&Path]) -> String {
    const SHOWN: usize = 20;
    let mut text = paths.iter().take(SHOWN).map(quote).collect::<Vec<_>>().join(", ");
    if paths.len() > SHOWN {
        text.push_str(&format!(" and {} more", paths.len() - SHOWN));
    }
    text
}

/// Where the control plane ends for a provider.
pub(crate) const CONTROL_PLANE: &str =
    "Covers this provider's launcher, plans and process. A service that listens on a path is a matter of sockets-unix.";

/// What a command finds as its temp area where a mount tree provides it.
pub(crate) fn temp_view(request: &Request) -> TempView {
    let lasting = request.lasting();
    if lasting.is_empty() {
        let paths = request.covered().into_iter().chain(["/dev/shm".into()]).collect();
        return TempView::PrivateTmpfs { paths };
    }
    let place =
        |(at, directory): &(PathBuf, PinnedRoot)| TempMount { at: at.clone(), directory: directory.path.clone() };
    TempView::SessionDirectories { places: lasting.into_iter().map(place).collect() }
}

/// Says where temp files go when nothing may be written.
pub(crate) const NO_TEMP: &str = "No temp directory is writable in this mode; TMPDIR is left as the caller has it.";

#[cfg(test)]
pub(crate) mod golden {
    //! Compares a plan with the text file that shows it. `PINFOLD_BLESS=1` rewrites the files.

    use super::*;
    use pinfold_policy::Guarantee as G;

    pub(crate) fn root(path: &str, inode: u64) -> PinnedRoot {
        PinnedRoot { path: path.into(), device: 2049, inode }
    }

    pub(crate) fn request(mode: ConfinedMode) -> Request {
        let writes = mode == ConfinedMode::WorkspaceWrite;
        Request {
            mode,
            roots: if writes { vec![root("/data/a b", 11), root("/data/a b/-x", 12)] } else { Vec::new() },
            between: Vec::new(),
            landlock_abi: 7,
            shared_temps: vec!["/tmp".into(), "/var/tmp".into()],
            temp: None,
            session_temps: Vec::new(),
            other_temps: None,
            cwd: Some("/data/a b".into()),
            status: StatusTo::Nowhere,
            asks: None,
            supervise: false,
            terminal: false,
            observed: false,
            bounds: Bounds::default(),
            own_copies: Vec::new(),
            devices: Vec::new(),
            closed: Closed::default(),
        }
    }

    pub(crate) fn protected() -> crate::protected::Protected {
        crate::protected::Protected {
            default_names: true,
            home: Some("/home/u".into()),
            patterns: vec!["/data/a b/*.lock".into()],
            found: vec![("/data/a b/my hooks".into(), pinfold_policy::ProtectionRule::GitTarget)],
            has_more: false,
        }
    }

    /// The same with everything closed that can be: the network off, two denied reads, sockets.
    pub(crate) fn closed_request(mode: ConfinedMode) -> Request {
        use crate::closed::{Cover, Denied};
        let mut request = request(mode);
        let cover = |path: &str, directory| Cover { path: path.into(), directory };
        request.closed.network = Network::Off;
        request.closed.denied = Denied {
            covers: vec![cover("/data/a b/in/k e y", false), cover("/home/u/.ssh", true)],
            absent: vec!["/home/u/.netrc".into()],
            ..Denied::default()
        };
        if request.writes() {
            request.between = vec![root("/data/a b/in", 13)];
        }
        request.closed.sockets = Some(crate::sockets::SocketWalls {
            covers: vec![cover("/run/dbus", true), cover("/run/docker.sock", false)],
            hollows: vec!["/run/user/1000".into()],
            keeps: vec!["/run/user/1000/agent".into()],
            allowed: vec!["/run/user/1000/agent".into()],
            absent: Vec::new(),
            in_roots: vec!["/data/a b/dev.sock".into()],
            linked: vec!["/run/docker.sock".into()],
            lost: Some(2),
        });
        request.closed.unset = vec!["*TOKEN"];
        request.bounds.words = vec![("processes", 51), ("cpu", 60)];
        request.bounds.temp = Some(1 << 20);
        request.own_copies =
            vec!["/etc/ssh/ssh_config.d/1.conf".into(), "/home/u/.ssh/denied".into(), "/data/a b/own".into()];
        request
    }

    /// One word per line, escaped; one blank line between plan and statement.
    pub(crate) fn check(file: &str, words: &[OsString], statement: &Statement) {
        let mut text = String::new();
        for word in words {
            text.push_str(&pinfold_policy::quote::quote(word));
            text.push('\n');
        }
        text.push_str(&format!("\ntemp: {:?}\n", statement.temp));
        let mut lines = statement.guarantees.clone();
        lines.sort_by_key(|line| line.guarantee);
        for line in lines {
            let layers: Vec<_> = line.layers.iter().map(|layer| layer.as_str()).collect();
            let verified = if line.verified { "verified" } else { "unverified" };
            text.push_str(&format!("{}: {} {verified} [{}]\n", line.guarantee, line.strength, layers.join(" ")));
            if file.ends_with("closed.txt") && matches!(line.guarantee, G::ReadDeny | G::Network | G::SocketsUnix) {
                line.notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
            }
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        if std::env::var_os("PINFOLD_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, expected, "{file}: run with PINFOLD_BLESS=1 if the change is meant");
    }
}
