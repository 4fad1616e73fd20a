# Tries every door to whoever called Pinfold and to Pinfold's own files, and says of each `DOOR open` or `DOOR ERRNO`.
import ctypes, errno, glob, json, os, signal, socket, sys

t = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
proc = "/proc/%d/" % t["caller"]

def call(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "")
    return result

def read(path):
    with open(path, "rb", buffering=0) as file:
        file.read(1)

def write(path, flags=os.O_WRONLY, data=b"door", at=None):
    fd = os.open(path, flags, 0o600)
    os.pwrite(fd, data, at) if at is not None else os.write(fd, data)
    os.close(fd)

def connect(name):
    socket.socket(socket.AF_UNIX).connect(name)

def share():
    ctypes.memmove(call(libc.shmat(t["segment"], None, 0)), b"door", 4)

def trace():
    call(libc.ptrace(0x4206, t["caller"], 0, 0))  # PTRACE_SEIZE
    libc.ptrace(17, t["caller"], 0, 0)

def steal():
    fd = os.pidfd_open(t["caller"])
    call(libc.syscall(438, fd, 9, 0))  # pidfd_getfd

def verdict():
    write((glob.glob(t["runtime"] + "/pinfold/verdicts/*") or [t["runtime"] + "/pinfold/verdicts/x"])[0])

launcher, own = t["bin"] + "/pinfold-run", t["runtime"] + "/pinfold"
doors = {
    "memory-read": lambda: open(proc + "mem", "rb").close(),
    "memory-write": lambda: write(proc + "mem", at=t["memory"]),
    "environment": lambda: read(proc + "environ"),
    "maps": lambda: read(proc + "maps"),
    "program": lambda: read(proc + "exe"),
    "descriptor": lambda: write(proc + "fd/9", os.O_WRONLY | os.O_APPEND, b"descriptor"),
    "descriptor-link": lambda: os.readlink(proc + "fd/9"),
    "root": lambda: write(proc + "root" + t["out"] + "/by-root", os.O_WRONLY | os.O_CREAT),
    "working-directory": lambda: write(proc + "cwd/by-cwd", os.O_WRONLY | os.O_CREAT),
    "signal": lambda: os.kill(t["caller"], signal.SIGUSR1),
    "process-descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(t["caller"]), signal.SIGUSR1),
    "descriptor-theft": steal,
    "trace": trace,
    "socket": lambda: connect(t["out"] + "/control"),
    "abstract-socket": lambda: connect("\0" + t["tag"]),
    "shared-memory": share,
    "posix-shared-memory": lambda: write("/dev/shm/" + t["tag"]),
    "inherited": lambda: os.pwrite(9, b"inherited", 50),
    "configuration": lambda: write(t["home"] + "/.config/pinfold/new", os.O_WRONLY | os.O_CREAT),
    "report-file": lambda: write(t["report"]),
    "report-file-replace": lambda: os.rename(t["out"] + "/prepared-report", t["report"]),
    "verdict-write": verdict,
    "runtime-create": lambda: write(own + "/new", os.O_WRONLY | os.O_CREAT),
    "runtime-mode": lambda: os.chmod(own, 0o711),
    "launcher-write": lambda: write(launcher, os.O_WRONLY | os.O_APPEND, b""),
    "launcher-replace": lambda: os.rename(t["out"] + "/prepared-launcher", launcher),
    "launcher-remove": lambda: os.unlink(t["bin"] + "/pinfold"),
    "runtime-rename": lambda: os.rename(own, own + ".moved"),
}
for door, act in doors.items():
    try:
        act()
        print(door, "open", flush=True)
    except OSError as error:
        print(door, errno.errorcode.get(error.errno, error.errno), flush=True)
