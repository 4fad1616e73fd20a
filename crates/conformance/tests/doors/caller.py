# Stands for whoever calls Pinfold: has what callers have (memory, variables, descriptors, sockets, shared memory), starts the
# command that it is given, and says afterwards what reached it. One line of JSON.
#
# Arguments: FACTS (JSON: out, tag and more, for the attack), then the command; the facts are added as its last word.
import ctypes, json, os, signal, socket, subprocess, sys

facts = json.loads(sys.argv[1])
out, tag = facts["out"], facts["tag"]
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.prctl(0x59616D61, ctypes.c_ulong(0xFFFFFFFFFFFFFFFF), 0, 0, 0)  # PR_SET_PTRACER: where Yama asks for it

signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(1))
by_path = socket.socket(socket.AF_UNIX)
by_path.bind(out + "/control")
by_name = socket.socket(socket.AF_UNIX)
by_name.bind("\0" + tag)
for listener in (by_path, by_name):
    listener.listen()
    listener.setblocking(False)
segment = libc.shmget(0, 4096, 0o1600)  # IPC_CREAT
address = libc.shmat(segment, None, 0)
memory = ctypes.create_string_buffer(b"untouched", 64)
held = os.open(out + "/held", os.O_RDWR | os.O_CREAT, 0o600)
os.dup2(held, 9)
shared = open("/dev/shm/" + tag, "wb+")
os.chdir(out)
facts.update(caller=os.getpid(), segment=segment, memory=ctypes.addressof(memory))
# The command's own working directory is the workspace, so that the caller's is another.
ended = subprocess.run(sys.argv[2:] + [json.dumps(facts)], cwd=facts["ws"], pass_fds=(9,), stdin=subprocess.DEVNULL)

def connections(listener):
    try:
        listener.accept()
        return 1
    except BlockingIOError:
        return 0

reached = {
    "signal": len(signals) > 0,
    "socket": connections(by_path) > 0,
    "abstract-socket": connections(by_name) > 0,
    "shared-memory": ctypes.string_at(address, 4) == b"door",
    "memory-write": memory.value.startswith(b"door"),
    "descriptor": b"descriptor" in os.pread(held, 100, 0),
    "inherited": b"inherited" in os.pread(held, 100, 0),
    "root": os.path.exists(out + "/by-root"),
    "working-directory": os.path.exists(out + "/by-cwd"),
    "posix-shared-memory": os.path.getsize("/dev/shm/" + tag) > 0,
}
libc.shmctl(segment, 0, None)  # IPC_RMID
os.unlink("/dev/shm/" + tag)
print(json.dumps({"status": ended.returncode, "reached": [door for door in reached if reached[door]]}))
