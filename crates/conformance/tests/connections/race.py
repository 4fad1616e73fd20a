"""Changes what a connection is about while it is looked at. `race.py HOME KIND ROUNDS`; prints `done` and how often it was
connected, and how often refused."""

import ctypes, mmap, os, signal, socket, struct, sys, threading, time

home, kind, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
target = home + "/relative"
server = socket.socket(socket.AF_UNIX)
server.bind("mine")
server.listen(4096)
connected = refused = 0


def take():
    server.setblocking(False)
    try:
        while True:
            server.accept()[0].close()
    except BlockingIOError:
        pass


def connect(act):
    global connected, refused
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    try:
        act(sock)
        connected += 1
    except OSError:
        refused += 1
    sock.close()
    if (connected + refused) % 1000 == 0:
        take()


def beside(change):
    """Changes something for ever in another process; returns its number."""
    pid = os.fork()
    if pid == 0:
        while True:
            change()
    return pid


def address(path):
    return struct.pack("H", socket.AF_UNIX) + path.encode() + b"\0"


def names():
    os.symlink(target, "x")
    os.symlink("mine", "y")
    AT_FDCWD, RENAME_EXCHANGE = -100, 2

    def change():
        libc.renameat2(AT_FDCWD, b"x", AT_FDCWD, b"y", RENAME_EXCHANGE)

    pid = beside(change)
    for _ in range(rounds):
        connect(lambda sock: sock.connect("x"))
    os.kill(pid, signal.SIGKILL)


def memory():
    one, other = address("mine"), address(target)
    length = max(len(one), len(other))
    one, other = one.ljust(length, b"\0"), other.ljust(length, b"\0")
    shared = mmap.mmap(-1, 4096)
    place = ctypes.addressof(ctypes.c_char.from_buffer(shared))

    def change():
        shared[:length] = one
        shared[:length] = other

    pid = beside(change)

    def act(sock):
        if libc.connect(sock.fileno(), ctypes.c_void_p(place), length) != 0:
            raise OSError(ctypes.get_errno(), "connect")

    for _ in range(rounds):
        connect(act)
    os.kill(pid, signal.SIGKILL)


def directories():
    """Two threads with one working directory; in both directories the name leads to a socket."""
    os.makedirs("own", exist_ok=True)
    if not os.path.exists("own/relative"):
        os.symlink("../mine", "own/relative")
    here, there = os.open("own", os.O_PATH), os.open(home, os.O_PATH)
    back = os.open(".", os.O_PATH)
    stop = []

    def change():
        while not stop:
            libc.fchdir(here)
            libc.fchdir(there)

    thread = threading.Thread(target=change)
    thread.start()
    for _ in range(rounds):
        connect(lambda sock: sock.connect("relative"))
    stop.append(1)
    thread.join()
    os.fchdir(back)


def descriptors():
    """A number that means a socket of the network now, and a unix one then."""
    number = os.dup(0)
    stop = []
    inet = socket.socket()
    inet.setblocking(False)

    def change():
        while not stop:
            unix = socket.socket(socket.AF_UNIX)
            unix.setblocking(False)
            os.dup2(unix.fileno(), number)
            time.sleep(0.00001)
            os.dup2(inet.fileno(), number)
            time.sleep(0.00001)
            unix.close()

    thread = threading.Thread(target=change)
    thread.start()
    path = address(target)

    def act(_):
        if libc.connect(number, path, len(path)) != 0:
            raise OSError(ctypes.get_errno(), "connect")

    for _ in range(rounds):
        connect(act)
    stop.append(1)
    thread.join()


{"names": names, "memory": memory, "directories": directories, "descriptors": descriptors}[kind]()
take()
print("done", connected, refused, flush=True)
