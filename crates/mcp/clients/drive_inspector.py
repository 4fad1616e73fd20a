"""Drives `pinfold mcp` with the inspector's command line: every tool and resource, both eras of the protocol, over standard
streams and HTTP, a load. That program makes one call and ends, so that what one call leaves to the next (a job, a file that was
read) goes over HTTP, where the server stays. It answers no question and withdraws no call; the Python client's driver does.

Usage: drive_inspector.py PINFOLD NODE INSPECTOR. Prints one line per test and a closing line that `cargo xtask ci` counts.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PINFOLD, INSPECTOR = (os.path.abspath(word) for word in (sys.argv[1], sys.argv[3]))
NODE = shutil.which(sys.argv[2])
ERAS = ["legacy", "modern"]
TOOLS = {"bash", "job_output", "job_kill", "read", "write", "edit", "list", "search"}


class Place:
    def __init__(self):
        root = pathlib.Path(os.environ.get("PINFOLD_TEST_DIR", "/var/lib"))
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="pinfold-mcp-", dir=root)).resolve()
        for name in ["ws", "home"]:
            (self.base / name).mkdir()
        self.called, self.server, self.address = set(), None, None

    def command(self, *more):
        return [PINFOLD, "mcp", "--workspace", str(self.base / "ws"), "--mode", "workspace-write", *more]

    def serve(self):
        """From here on one server answers every call."""
        environment = {"HOME": str(self.base / "home"), "PATH": os.environ["PATH"]}
        words = dict(env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.server = subprocess.Popen(self.command("--http", "0"), **words)
        line = next(line for line in self.server.stderr if "serving" in line)
        url, token = re.search(r'serving (\S+); the token is in "(.*)"', line).groups()
        headers = {"Authorization": "Bearer " + pathlib.Path(token).read_text()}
        self.address = {"type": "streamable-http", "url": url, "headers": headers}

    def ask(self, era, *words, check=True):
        # The inspector takes what it does not know for the server's words, so the server is named in a file.
        config = self.base / "servers.json"
        command = self.command()
        entry = {"type": "stdio", "command": command[0], "args": command[1:], "env": {"HOME": str(self.base / "home")}}
        entry = self.address or entry
        config.write_text(json.dumps({"mcpServers": {"pinfold": entry}}))
        command = [NODE, INSPECTOR, "--cli", "--config", str(config), "--server", "pinfold", "--protocol-era", era]
        command += ["--format", "json", "-q", *words]
        environment = {"HOME": str(self.base / "home"), "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            command, env=environment, cwd=self.base, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
        )
        if check:
            assert ended.returncode == 0, (command, ended)
        return json.loads(ended.stdout) if ended.stdout.strip().startswith("{") else ended

    def call(self, era, tool, arguments, **more):
        words = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        answer = self.ask(era, *words, **more)
        result = answer.get("result", answer) if isinstance(answer, dict) else answer
        if isinstance(result, dict) and "content" in result and not result.get("isError"):
            self.called.add(tool)
        return result

    def close(self):
        if self.server:
            self.server.terminate()
            self.server.wait(30)
        shutil.rmtree(self.base, ignore_errors=True)


def text(result):
    return result["content"][0]["text"]


def tools_are_listed_without_complaint(place, era):
    answer = place.ask(era, "--method", "tools/list", "--strict")
    names = {tool["name"] for tool in answer.get("result", answer)["tools"]}
    assert names == TOOLS, names


def every_tool_is_called(place, era):
    result = place.call(era, "bash", {"command": "echo out; exit 3", "description": "d"})
    assert text(result) == "out\n[exit code: 3]", result
    assert result["structuredContent"]["outcome"]["ending"]["code"] == 3, result
    result = place.call(era, "write", {"file_path": "f", "content": "one\n"})
    assert text(result).startswith("created: "), result
    result = place.call(era, "read", {"file_path": "f"})
    assert "1: one" in text(result), result
    # Each call has a server of its own, which has read nothing yet.
    result = place.call(era, "edit", {"file_path": "f", "old_string": "one", "new_string": "1"}, check=False)
    assert "read it and retry" in json.dumps(result if isinstance(result, dict) else result.stdout + result.stderr), result
    result = place.call(era, "list", {})
    assert text(result) == "f\n", result
    result = place.call(era, "search", {"pattern": "one"})
    assert text(result) == "f:1:one\n", result
    result = place.call(era, "bash", {"command": "true", "description": "d", "run_in_background": True})
    assert result["structuredContent"] == {"kind": "background", "jobId": "job-1"}, result
    for tool in ["job_output", "job_kill"]:
        result = place.call(era, tool, {"job_id": "job-1"}, check=False)
        assert "unknown job" in json.dumps(result if isinstance(result, dict) else result.stdout + result.stderr), result


def every_tool_does_its_work(place, era):
    place.serve()
    result = place.call(era, "write", {"file_path": "f", "content": "one\n"})
    result = place.call(era, "read", {"file_path": "f"})
    assert "1: one" in text(result), result
    result = place.call(era, "edit", {"file_path": "f", "old_string": "one", "new_string": "1"})
    assert "+1" in text(result), result
    for tool in ["list", "search"]:
        result = place.call(era, tool, {} if tool == "list" else {"glob": "*"})
        assert text(result) == "f\n", result
    result = place.call(era, "bash", {"command": "echo job; sleep 600", "description": "d", "run_in_background": True})
    job = result["structuredContent"]["jobId"]
    seen = ""
    for _ in range(50):
        seen += text(place.call(era, "job_output", {"job_id": job, "wait_ms": 100}))
        if "job\n" in seen:
            break
    assert f"[{job} running]" in seen, seen
    result = place.call(era, "job_kill", {"job_id": job})
    assert "killed" in text(result), result
    assert place.called == TOOLS, place.called


def resources_are_read(place, era):
    answer = place.ask(era, "--method", "resources/list")
    assert len(answer.get("result", answer)["resources"]) == 3, answer
    for address in ["pinfold://policy", "pinfold://report", "pinfold://log"]:
        answer = place.ask(era, "--method", "resources/read", "--uri", address)
        assert answer.get("result", answer)["contents"][0]["text"], answer


def a_load_has_no_errors(place, era):
    words = ["--method", "tools/call", "--tool-name", "bash", "--tool-args-json", '{"command":"true","description":"d"}']
    answer = place.ask(era, *words, "--load", "--load-requests", "100", "--load-concurrency", "16")
    load = answer["result"]
    assert (load["ok"], load["toolErrors"], load["errors"]) == (100, 0, 0), load


TESTS = [
    tools_are_listed_without_complaint,
    every_tool_is_called,
    every_tool_does_its_work,
    resources_are_read,
    a_load_has_no_errors,
]

passed = failed = 0
for era in ERAS:
    for test in TESTS:
        name = f"inspector/{era}/{test.__name__}"
        place = Place()
        try:
            test(place, era)
            passed += 1
            print(f"test {name} ... ok", flush=True)
        except BaseException as error:  # whatever it is, the test has failed
            failed += 1
            print(f"test {name} ... FAILED: {error!r}", flush=True)
        finally:
            place.close()
print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored", flush=True)
sys.exit(1 if failed else 0)
