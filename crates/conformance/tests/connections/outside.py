"""Listens on sockets outside, in the ways in which nobody finds them in a list, and tells who was reached.

`outside.py HOME WS LOG`: LOG gets a line for each connection or datagram. Ready when HOME/ready exists."""

import os, selectors, socket, sys

home, ws, log = sys.argv[1:4]
selector = selectors.DefaultSelector()


def listen(name, kind=socket.SOCK_STREAM):
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(name)
    if kind != socket.SOCK_DGRAM:
        sock.listen(64)
    selector.register(sock, selectors.EVENT_READ, name if isinstance(name, str) else name.decode())


os.makedirs(home + "/service", exist_ok=True)
os.makedirs(home + "/elsewhere", exist_ok=True)
listen(home + "/docker.sock")
listen(home + "/packets", socket.SOCK_SEQPACKET)
listen(home + "/log", socket.SOCK_DGRAM)
listen(ws + "/old")
listen("\0" + os.path.basename(os.path.dirname(ws)))
os.chdir(home)
listen("relative")
listen("new\nline")
listen("service/s")
os.rename(home + "/service", home + "/renamed-service")
listen("renamed-before")
os.rename("renamed-before", "renamed")
listen("first-name")
os.link("first-name", "second-name")
os.unlink("first-name")
listen("l" * 60)
os.link(home + "/docker.sock", ws + "/hard")
os.symlink(home + "/docker.sock", ws + "/soft")
open(home + "/ready", "w").close()
later = False
while True:
    for key, _ in selector.select(0.02):
        with open(log, "a") as file:
            file.write(key.data.replace("\0", "@").replace("\n", "?") + "\n")
        if key.fileobj.type == socket.SOCK_DGRAM:
            key.fileobj.recv(100)
        else:
            key.fileobj.accept()[0].close()
    if not later and os.path.exists(ws + "/go"):
        later = True
        listen(home + "/later")
        os.rename(home + "/later", home + "/appeared")
