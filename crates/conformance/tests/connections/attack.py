"""Goes for the sockets of `outside.py`, by every way that a program has. `attack.py HOME WS`: a line for each way, with `open`
or an error's name. The working directory is WS."""

import ctypes, errno, os, socket, struct, sys, threading, time

home, ws = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
docker = home + "/docker.sock"


def connect(path, kind=socket.SOCK_STREAM, blocking=True):
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.setblocking(blocking)
        sock.connect(path)


def raw(path):
    """Exactly these bytes, without a NUL."""
    with socket.socket(socket.AF_UNIX) as sock:
        address = struct.pack("H", socket.AF_UNIX) + path
        if libc.connect(sock.fileno(), address, len(address)) != 0:
            raise OSError(ctypes.get_errno(), "connect")


def inside(directory, act):
    before = os.open(".", os.O_RDONLY)
    os.chdir(directory)
    try:
        act()
    finally:
        os.fchdir(before)


def by_descriptor():
    fd = os.open(docker, os.O_PATH)
    connect(f"/proc/self/fd/{fd}")


def by_directory():
    fd = os.open(home, os.O_PATH)
    connect(f"/proc/self/fd/{fd}/docker.sock")


def by_link(name, target):
    os.symlink(target, name)
    connect(name)


def hard_link():
    os.link(docker, "made-hard")
    connect("made-hard")


def moved():
    os.rename(home + "/renamed", "moved-here")
    os.rename("moved-here", home + "/renamed")


def linked_into_temp():
    """The temp area may lie on the same file system."""
    name = os.environ.get("TMPDIR", ws) + "/linked"
    try:
        os.link("old", name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        name = ws + "/linked"
        os.link("old", name)
    try:
        connect(name)
    finally:
        os.unlink(name)


def in_thread(act):
    problems = []

    def run():
        try:
            act()
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def own_tables():
    CLONE_FS, CLONE_FILES = 0x200, 0x400
    if libc.unshare(CLONE_FS | CLONE_FILES) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.chdir(home)
    connect("docker.sock")


def in_child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise OSError(status, "child")


def datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", home + "/log")


def datagram_of_raw():
    with socket.socket(socket.AF_UNIX, socket.SOCK_RAW) as sock:
        sock.sendmsg([b"x"], [], 0, home + "/log")


def datagram_of_pair():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendmsg([b"x"], [], 0, home + "/log")


def connected_datagram():
    connect(home + "/log", socket.SOCK_DGRAM)


def later():
    open("go", "w").close()
    while not os.path.exists(home + "/appeared"):
        time.sleep(0.01)
    connect(home + "/appeared")


ROUTES = {
    "absolute": lambda: connect(docker),
    "without-waiting": lambda: connect(docker, blocking=False),
    "packets": lambda: connect(home + "/packets", socket.SOCK_SEQPACKET),
    "relative-name": lambda: connect(home + "/relative"),
    "new-line": lambda: connect(home + "/new\nline"),
    "renamed": lambda: connect(home + "/renamed"),
    "renamed-directory": lambda: connect(home + "/renamed-service/s"),
    "second-name": lambda: connect(home + "/second-name"),
    "appeared-later": later,
    "hard-link-in-workspace": lambda: connect("hard"),
    "soft-link-in-workspace": lambda: connect("soft"),
    "old-in-workspace": lambda: connect("old"),
    "own-soft-link": lambda: by_link("made-soft", docker),
    "own-link-to-directory": lambda: (os.symlink(home, "up"), connect("up/docker.sock")),
    "own-hard-link": hard_link,
    "moved-here": moved,
    "linked-into-temp": linked_into_temp,
    "dot-dot": lambda: connect("./../" + os.path.relpath(docker, os.path.dirname(ws))),
    "working-directory": lambda: inside(home, lambda: connect("docker.sock")),
    "proc-working-directory": lambda: inside(home, lambda: connect("/proc/self/cwd/docker.sock")),
    "proc-root": lambda: connect("/proc/self/root" + docker),
    "proc-thread-self": lambda: inside(home, lambda: connect("/proc/thread-self/cwd/docker.sock")),
    "descriptor": by_descriptor,
    "descriptor-of-directory": by_directory,
    "longest-name": lambda: inside(home, lambda: raw(b"./" * 24 + b"l" * 60)),
    "no-nul": lambda: inside(home, lambda: raw(b"docker.sock")),
    "behind-nul": lambda: inside(home, lambda: raw(b"docker.sock\0" + ws.encode()[:40])),
    "thread": lambda: in_thread(lambda: connect(docker)),
    "own-tables": lambda: in_thread(own_tables),
    "child": lambda: in_child(lambda: connect(docker)),
    "abstract": lambda: connect("\0" + os.path.basename(os.path.dirname(ws))),
    "datagram": datagram,
    "datagram-of-raw": datagram_of_raw,
    "datagram-of-pair": datagram_of_pair,
    "connected-datagram": connected_datagram,
}

for name, act in ROUTES.items():
    try:
        act()
        print(name, "open", flush=True)
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno), flush=True)
