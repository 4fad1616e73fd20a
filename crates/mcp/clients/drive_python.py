"""Drives `pinfold mcp` with the official Python client: every tool, elicitation, cancellation, progress, resources, in both
revisions, over standard streams and HTTP.

Usage: drive_python.py PINFOLD. Prints one line per test and a closing line that `cargo xtask ci` counts.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters

warnings.simplefilter("ignore")
PINFOLD = os.path.abspath(sys.argv[1])
MODES = ["legacy", "2026-07-28", "auto"]


class Place:
    """A workspace, a place outside of it and a home directory, none of them below /tmp."""

    def __init__(self):
        # Commands have a temp area of their own at /tmp and /var/tmp.
        root = pathlib.Path(os.environ.get("PINFOLD_TEST_DIR", "/var/lib"))
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="pinfold-mcp-", dir=root)).resolve()
        for name in ["ws", "out", "home"]:
            (self.base / name).mkdir()
        self.ws, self.out, self.home = (self.base / name for name in ["ws", "out", "home"])

    def environment(self):
        return {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def parameters(self, *words):
        words = ["mcp", "--workspace", str(self.ws), *words]
        return StdioServerParameters(command=PINFOLD, args=words, env=self.environment(), cwd=str(self.ws))

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)


def text(result):
    return result.content[0].text


async def bash(client, command, **more):
    return await client.call_tool("bash", {"command": command, "description": "a test", **more})


async def tools(place, mode):
    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"bash", "job_output", "job_kill", "read", "write", "edit", "list", "search"}, names
        # The client checks what comes beside the text against the schema.
        result = await bash(client, "echo out; exit 3")
        assert text(result) == "out\n[exit code: 3]" and not result.is_error, result
        assert result.structured_content["outcome"]["ending"] == {"kind": "exited", "code": 3}, result.structured_content
        result = await client.call_tool("write", {"file_path": "f", "content": "one\ntwo\n"})
        assert not result.is_error, result
        result = await client.call_tool("edit", {"file_path": "f", "old_string": "two", "new_string": "2"})
        assert "+2" in text(result), result
        result = await client.call_tool("read", {"file_path": "f"})
        assert "2: 2" in text(result), result
        result = await client.call_tool("list", {})
        assert text(result) == "f\n", result
        result = await client.call_tool("search", {"pattern": "one"})
        assert text(result) == "f:1:one\n", result
        result = await bash(client, "echo job; sleep 600", run_in_background=True)
        job = result.structured_content["jobId"]
        for _ in range(100):
            result = await client.call_tool("job_output", {"job_id": job, "wait_ms": 100})
            if "job\n" in text(result):
                break
        assert f"[{job} running]" in text(result), result
        result = await client.call_tool("job_kill", {"job_id": job})
        assert "killed" in text(result), result
        result = await bash(client, "", sandbox_permissions="x")
        assert result.is_error and text(result) == "invalid command: expected a non-empty string", result


async def resources(place, mode):
    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        if mode != "2026-07-28":  # a client that is told the revision does not ask for anything else
            assert "workspace-write" in client.instructions, client.instructions
        await bash(client, "true")
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert listed == {"pinfold://policy", "pinfold://report", "pinfold://log"}, listed
        read = await client.read_resource("pinfold://report")
        assert json.loads(read.contents[0].text)["latest"]["report"]["guarantees"], read
        read = await client.read_resource("pinfold://log")
        assert "call/ended" in read.contents[0].text, read


async def elicitation(place, mode):
    asked = []
    answers = iter(["1", "no"])

    async def decide(context, params):
        asked.append(params)
        return types.ElicitResult(action="accept", content={"decision": next(answers)})

    words = ["--mode", "read-only"]
    more = {"sandbox_permissions": "workspace-write", "justification": "the test needs it"}
    async with Client(place.parameters(*words), mode=mode, elicitation_callback=decide) as client:
        denied = await bash(client, "touch f")
        assert "[sandbox: file access denied under read-only mode]" in text(denied), denied
        allowed = await bash(client, "touch f && echo done", **more)
        assert text(allowed) == "done\n" and (place.ws / "f").exists(), allowed
        assert "touch f && echo done" in asked[0].message, asked
        again = await bash(client, "touch g")
        assert "denied under read-only" in text(again), again
        rejected = await bash(client, "touch g", **more)
        assert rejected.is_error and text(rejected).startswith("the user rejected"), rejected
        assert len(asked) == 2 and not (place.ws / "g").exists(), asked
    async with Client(place.parameters(*words), mode=mode) as client:
        result = await bash(client, "touch h", **more)
        assert "no approval channel is available" in text(result), result


async def cancellation(place, mode):
    marker = f"9{os.getpid()}{time.monotonic_ns() % 1000000}"
    sleeping = f"sleep {marker}"

    def alive():
        found = subprocess.run(["pgrep", "-f", f"^{sleeping}$"], capture_output=True, text=True)
        return found.stdout.split()

    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        calls = [asyncio.create_task(bash(client, f"echo {n}; {sleeping if n % 2 else 'sleep 1'}")) for n in range(10)]
        for _ in range(600):
            if len(alive()) >= 5:
                break
            await asyncio.sleep(0.05)
        assert len(alive()) >= 5, alive()
        for call in calls[1::2]:
            call.cancel()
        for n, call in enumerate(calls):
            if n % 2 == 0:
                assert text(await call) == f"{n}\n"
            else:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await call
        for _ in range(600):
            if not alive():
                break
            await asyncio.sleep(0.05)
        assert not alive(), "a cancelled call goes on"
        assert text(await bash(client, "echo next")) == "next\n"


async def progress(place, mode):
    told = []

    async def tell(value, total, message):
        told.append((value, message))

    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        arguments = {"command": "for i in 1 2 3 4; do echo step $i; sleep 1; done", "description": "d"}
        result = await client.call_tool("bash", arguments, progress_callback=tell)
        assert text(result).endswith("step 4\n"), result
    values = [value for value, _ in told]
    assert len(values) >= 2 and values == sorted(set(values)), told
    assert any("step" in (message or "") for _, message in told), told


async def roots(place, mode):
    root = place.out / "root"
    root.mkdir(exist_ok=True)

    async def name(context):
        return types.ListRootsResult(roots=[types.Root(uri=f"file://{root}"), types.Root(uri="file:///etc")])

    words = ["--mode", "workspace-write", "--roots-below", str(place.out)]
    async with Client(place.parameters(*words), mode=mode, list_roots_callback=name) as client:
        for _ in range(100):
            result = await bash(client, f"touch {root}/x && echo ok")
            if text(result) == "ok\n":
                break
            await asyncio.sleep(0.1)
        assert text(result) == "ok\n", result
        result = await bash(client, f"touch {place.out}/x")
        assert "denied under workspace-write" in text(result), result


async def http(place, mode):
    words = [PINFOLD, "mcp", "--workspace", str(place.ws), "--mode", "workspace-write", "--http", "0"]
    server = subprocess.Popen(words, env=place.environment(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        line = next(line for line in server.stderr if "serving" in line)
        url, token = re.search(r'serving (\S+); the token is in "(.*)"', line).groups()
        headers = {"Authorization": "Bearer " + pathlib.Path(token).read_text()}
        from mcp.client.streamable_http import streamable_http_client

        try:
            import httpx2 as httpx
        except ImportError:
            import httpx
        async with httpx.AsyncClient(headers=headers, timeout=60) as web:
            async with Client(streamable_http_client(url, http_client=web), mode=mode) as client:
                assert text(await bash(client, "echo over http")) == "over http\n"
        refused = False
        try:
            async with Client(url, mode=mode) as client:
                await client.list_tools()
        except BaseException as error:
            refused = True
            del error
        assert refused, "a client without a token was served"
    finally:
        server.terminate()
        assert server.wait(30) == 143, server.returncode


TESTS = [tools, resources, elicitation, cancellation, progress, roots, http]


async def main():
    passed = failed = 0
    for mode in MODES:
        for test in TESTS:
            name = f"python/{mode}/{test.__name__}"
            place = Place()
            try:
                await asyncio.wait_for(test(place, mode), 120)
                passed += 1
                print(f"test {name} ... ok", flush=True)
            except BaseException as error:  # whatever it is, the test has failed
                failed += 1
                import traceback

                traceback.print_exc()
                print(f"test {name} ... FAILED: {error!r}", flush=True)
            finally:
                place.close()
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored", flush=True)
    sys.exit(1 if failed else 0)


asyncio.run(main())
