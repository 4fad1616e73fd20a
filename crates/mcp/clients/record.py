"""Stands between a client and a server on standard streams, passes every byte on, and writes down every line.

Usage: record.py FOLDER COMMAND... Each line of the file is an object: who said it, and what.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading

folder, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
book = open(folder / f"{os.getpid()}.jsonl", "a", buffering=1)
turn = threading.Lock()


def write_all(to, data):
    while data:
        data = data[os.write(to, data) :]


def copy(source, to, who):
    rest = b""
    while data := os.read(source, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        with turn:
            for line in lines:
                book.write(json.dumps({"from": who, "line": line.decode("utf-8", "replace")}) + "\n")
        try:
            write_all(to, data)
        except OSError:
            return
    if rest:
        with turn:
            book.write(json.dumps({"from": who, "line": rest.decode("utf-8", "replace"), "cut": True}) + "\n")


def to_server():
    copy(0, server.stdin.fileno(), "client")
    server.stdin.close()


threading.Thread(target=to_server, daemon=True).start()
copy(server.stdout.fileno(), 1, "server")
code = server.wait()
# The thread above may still wait for a client that says nothing.
os._exit(code if code >= 0 else 128 - code)
