"""What a command does with sockets of its own, and with the network: prints `done NAME` for each."""

import asyncio, ctypes, multiprocessing.connection, os, signal, socket, struct, sys, tempfile, threading, time

libc = ctypes.CDLL(None, use_errno=True)


def pair(name, kind=socket.SOCK_STREAM):
    server = socket.socket(socket.AF_UNIX, kind)
    server.bind(name)
    server.listen(1)
    client = socket.socket(socket.AF_UNIX, kind)
    client.connect(name)
    accepted = server.accept()[0]
    client.send(b"well")
    assert accepted.recv(9) == b"well" and client.getpeername() == server.getsockname()
    return server, client


def stream():
    pair("s-stream")
    pair(tempfile.mkdtemp() + "/s")


def packets():
    pair("s-packets", socket.SOCK_SEQPACKET)


def abstract():
    pair("\0" + os.path.basename(os.path.dirname(os.getcwd())) + str(os.getpid()))


def renamed():
    server = socket.socket(socket.AF_UNIX)
    server.bind("s-before")
    server.listen()
    os.mkdir("s-directory")
    os.rename("s-before", "s-directory/after")
    os.symlink("s-directory/after", "s-link")
    for name in ("s-directory/after", "s-link", os.path.abspath("s-link"), "/proc/self/cwd/s-link"):
        socket.socket(socket.AF_UNIX).connect(name)
    fd = os.open("s-directory/after", os.O_PATH)
    socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{fd}")


def peer():
    server, client = pair("s-peer")
    _, uid, gid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert (uid, gid) == (os.getuid(), os.getgid())
    other = socket.socket(socket.AF_UNIX)
    other.connect("s-peer")
    accepted = server.accept()[0]
    _, uid, gid = struct.unpack("3i", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert (uid, gid) == (os.getuid(), os.getgid())


def errors():
    for path, expected in (("absent", FileNotFoundError), ("own.txt", ConnectionRefusedError), ("s-peer/x", NotADirectoryError)):
        open("own.txt", "w").close()
        try:
            socket.socket(socket.AF_UNIX).connect(path)
        except expected:
            continue
        raise AssertionError(path)
    for descriptor, address, length, expected in (
        (-1, b"", 0, "EBADF"),
        (0, b"\x01\0x", 3, "ENOTSOCK"),
        (None, b"\x01\0x", 300, "EINVAL"),
        (None, b"\x01\0", 2, "EINVAL"),
        (None, None, 10, "EFAULT"),
    ):
        import errno

        with socket.socket(socket.AF_UNIX) as sock:
            number = sock.fileno() if descriptor is None else descriptor
            assert libc.connect(number, address, length) == -1
            assert errno.errorcode[ctypes.get_errno()] == expected, (expected, ctypes.get_errno())


def full_queue():
    """A server's queue is full: a client waits until there is room, in time, or until a signal comes."""
    server = socket.socket(socket.AF_UNIX)
    server.bind("s-full")
    server.listen(0)
    held = socket.socket(socket.AF_UNIX)
    held.connect("s-full")
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect("s-full")
        raise AssertionError("room")
    except BlockingIOError:
        pass
    threading.Timer(0.3, lambda: server.accept()).start()
    client.setblocking(True)
    begun = time.monotonic()
    client.connect("s-full")
    assert 0.2 < time.monotonic() - begun < 5
    timed = socket.socket(socket.AF_UNIX)
    timed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
    begun = time.monotonic()
    address = struct.pack("H", socket.AF_UNIX) + b"s-full"
    assert libc.connect(timed.fileno(), address, len(address)) == -1 and ctypes.get_errno() == 11
    assert 0.2 < time.monotonic() - begun < 5
    handled = []
    signal.signal(signal.SIGALRM, lambda *_: handled.append(1))
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    interrupted = socket.socket(socket.AF_UNIX)
    assert libc.connect(interrupted.fileno(), address, len(address)) == -1 and ctypes.get_errno() == 4
    assert handled and interrupted.getblocking()


def tables():
    """A thread with descriptors of its own: the number means its own socket."""
    server = socket.socket(socket.AF_UNIX)
    server.bind("s-tables")
    server.listen()
    problems = []

    def run():
        try:
            assert libc.unshare(0x400) == 0
            sock = socket.socket(socket.AF_UNIX)
            sock.connect("s-tables")
            sock.send(b"x")
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not problems, problems
    assert server.accept()[0].recv(1) == b"x"


def many_threads():
    server = socket.socket(socket.AF_UNIX)
    server.bind("s-many")
    server.listen(4)
    done = []

    def run():
        for _ in range(20):
            socket.socket(socket.AF_UNIX).connect("s-many")
            done.append(1)

    threads = [threading.Thread(target=run) for _ in range(32)]
    [thread.start() for thread in threads]
    for _ in range(32 * 20):
        server.accept()
    [thread.join() for thread in threads]
    assert len(done) == 640


def processes():
    with multiprocessing.connection.Listener("s-listener") as listener:
        if os.fork() == 0:
            multiprocessing.connection.Client(listener.address).send("well")
            os._exit(0)
        assert listener.accept().recv() == "well"
        os.wait()
    # Its socket lies in the temp area, whose name may be too long for one.
    tempfile.tempdir = "."
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared["a"] = 1
        assert shared["a"] == 1


def loop():
    async def main():
        async def answer(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_unix_server(answer, "s-loop")
        reader, writer = await asyncio.open_unix_connection("s-loop")
        writer.write(b"well\n")
        assert await reader.readline() == b"well\n"
        server.close()

    asyncio.run(main())


def network():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    port = server.getsockname()[1]
    for blocking in (True, False):
        client = socket.socket()
        client.settimeout(5 if not blocking else None)
        client.connect(("127.0.0.1", port))
        accepted = server.accept()[0]
        client.send(b"x")
        assert accepted.recv(1) == b"x" and client.getblocking() == blocking or client.gettimeout() == 5
        address = struct.pack("!HH4s8x", socket.htons(socket.AF_INET), port, b"\x7f\0\0\1")
        # Who did not wait is told once more.
        assert libc.connect(client.fileno(), address, len(address)) == (-1 if blocking else 0)
        assert not blocking or ctypes.get_errno() == 106
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))
    for timeout in (None, 5):
        client = socket.socket()
        client.settimeout(timeout)
        try:
            client.connect(unused.getsockname())
            raise AssertionError("nobody listens")
        except ConnectionRefusedError:
            pass
    # UDP: connected, dissolved (AF_UNSPEC), and to a destination in the call.
    one, two = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.bind(("127.0.0.1", 0))
    two.connect(one.getsockname())
    two.send(b"x")
    assert one.recv(1) == b"x"
    nothing = struct.pack("H14x", socket.AF_UNSPEC)
    assert libc.connect(two.fileno(), nothing, len(nothing)) == 0
    two.sendto(b"y", one.getsockname())
    assert one.recv(1) == b"y"
    socket.getaddrinfo("localhost", 80)


def unanswered():
    """Nobody answers a full queue of TCP: the client waits, as long as it says, or until a signal comes."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    held = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(server.getsockname())
        held.append(client)
    time.sleep(0.2)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 300000))
    address = struct.pack("!HH4s8x", socket.htons(socket.AF_INET), server.getsockname()[1], b"\x7f\0\0\1")
    begun = time.monotonic()
    assert libc.connect(client.fileno(), address, len(address)) == -1 and ctypes.get_errno() == 115, ctypes.get_errno()
    assert 0.2 < time.monotonic() - begun < 5
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    client = socket.socket()
    assert libc.connect(client.fileno(), address, len(address)) == -1 and ctypes.get_errno() == 4, ctypes.get_errno()
    assert client.getblocking()


ACTS = [stream, packets, abstract, renamed, peer, errors, full_queue, tables, many_threads, processes, loop, network, unanswered]
for act in ACTS:
    try:
        act()
        print("done", act.__name__, flush=True)
    except BaseException as error:
        print("failed", act.__name__, type(error).__name__, error, flush=True)
os._exit(0)
