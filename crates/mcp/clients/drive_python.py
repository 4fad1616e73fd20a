"""Drives `pinfold mcp` with the official Python client: every tool, with every answer to a question, withdrawn, and with
progress; resources, roots and announcements, in both revisions, over standard streams and HTTP. Every message that the server
said over standard streams is then held against the protocol's schema.

Usage: drive_python.py PINFOLD [PART OF A NAME]. Prints one line per test and a closing line that `cargo xtask ci` counts.
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
from messages import Book

warnings.simplefilter("ignore")
PINFOLD = os.path.abspath(sys.argv[1])
MODES = ["legacy", "2026-07-28", "auto"]
RECORD = str(pathlib.Path(__file__).with_name("record.py"))
TOOLS = ["bash", "job_output", "job_kill", "read", "write", "edit", "list", "search"]
BOOK = Book()


class Place:
    """A workspace, a place outside of it and a home directory, none of them below /tmp."""

    def __init__(self):
        # Commands have a temp area of their own at /tmp and /var/tmp.
        root = pathlib.Path(os.environ.get("PINFOLD_TEST_DIR", "/var/lib"))
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="pinfold-mcp-", dir=root)).resolve()
        for name in ["ws", "out", "home", "said"]:
            (self.base / name).mkdir()
        self.ws, self.out, self.home, self.said = (self.base / name for name in ["ws", "out", "home", "said"])

    def environment(self):
        return {"HOME": str(self.home), "PATH": os.environ["PATH"]}

    def parameters(self, *words):
        words = [RECORD, str(self.said), PINFOLD, "mcp", "--workspace", str(self.ws), *words]
        return StdioServerParameters(command=sys.executable, args=words, env=self.environment(), cwd=str(self.ws))

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)


def text(result):
    return result.content[0].text


async def bash(client, command, **more):
    return await client.call_tool("bash", {"command": command, "description": "a test", **more})


async def tools(place, mode):
    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == set(TOOLS), names
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


MORE = {"sandbox_permissions": "workspace-write", "justification": "the test needs it"}


def asking(place, tool):
    """What needs more than read-only, and whether it was done."""
    file = place.ws / f"by-{tool}"
    match tool:
        case "bash":
            return {"command": f"echo done > {file}", "description": "d"}, lambda: file.exists()
        case "write":
            return {"file_path": str(file), "content": "done"}, lambda: file.exists()
        case "edit":
            file.write_text("old")
            arguments = {"file_path": str(file), "old_string": "old", "new_string": "new"}
            return arguments, lambda: file.read_text() == "new"


async def elicitation(place, mode):
    asked = []
    answer = None

    async def decide(context, params):
        asked.append(params)
        return answer() if callable(answer) else answer

    yes = types.ElicitResult(action="accept", content={"decision": "1"})
    rejected, cancelled = "the user rejected", "was cancelled"
    noes = [
        (types.ElicitResult(action="accept", content={"decision": "no"}), rejected),
        (types.ElicitResult(action="decline"), rejected),
        (types.ElicitResult(action="cancel"), cancelled),
        (types.ElicitResult(action="accept", content={"decision": "7"}), "none of those that were offered"),
    ]
    for tool in ["bash", "write", "edit"]:
        arguments, done = asking(place, tool)
        async with Client(place.parameters("--mode", "read-only"), mode=mode, elicitation_callback=decide) as client:
            await client.call_tool("read", {"file_path": str(place.ws / f"by-{tool}")})
            denied = await client.call_tool(tool, arguments)
            assert "[sandbox: file access denied under read-only mode]" in text(denied), denied
            for answer, said in noes:
                asked.clear()
                result = await client.call_tool(tool, {**arguments, **MORE})
                assert result.is_error and said in text(result) and not done(), (tool, answer, result)
                assert len(asked) == 1 and f"by-{tool}" in asked[0].message.replace("\n  | ", ""), asked
            answer = yes
            result = await client.call_tool(tool, {**arguments, **MORE})
            assert not result.is_error and done(), (tool, result)
            # It was for that call.
            later, done = asking(place, tool)
            await client.call_tool("read", {"file_path": str(place.ws / f"by-{tool}")})
            if tool != "edit":
                (place.ws / f"by-{tool}").unlink()
            result = await client.call_tool(tool, later)
            assert "denied under read-only" in text(result) and not done(), (tool, result)
        async with Client(place.parameters("--mode", "read-only"), mode=mode) as client:
            await client.call_tool("read", {"file_path": str(place.ws / f"by-{tool}")})
            result = await client.call_tool(tool, {**arguments, **MORE})
            assert "no approval channel is available" in text(result), (tool, result)


async def late_answers(place, mode):
    """An answer after the time is none."""
    folder = place.home / ".config/pinfold"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[approval]\ntimeout = 1\n")
    asked = []

    async def decide(context, params):
        asked.append(params)
        if len(asked) > 1:
            return types.ElicitResult(action="decline")
        await asyncio.sleep(3)
        return types.ElicitResult(action="accept", content={"decision": "1"})

    for tool in ["bash", "write", "edit"]:
        asked.clear()
        arguments, done = asking(place, tool)
        async with Client(place.parameters("--mode", "read-only"), mode=mode, elicitation_callback=decide) as client:
            await client.call_tool("read", {"file_path": str(place.ws / f"by-{tool}")})
            result = await client.call_tool(tool, {**arguments, **MORE})
            assert result.is_error and not done(), (tool, result)


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


SLOW = {
    "bash": {"command": "for i in 1 2 3 4; do echo step $i; sleep 1; done", "description": "d"},
    "job_output": {"job_id": "job-1", "wait_ms": 3500},
    "job_kill": {"job_id": "job-1"},
    "search": {"pattern": "no such text anywhere [0-9]{40}", "path": "/usr", "hidden": True, "no_ignore": True},
}
QUICK = {"read": {"file_path": "f"}, "list": {}}


async def progress(place, mode):
    """Of what takes its time, and of a question that waits for its answer; what is quick takes the token all the same."""
    told = []

    async def tell(value, total, message):
        told.append((value, message))

    async def think(context, params):
        await asyncio.sleep(3)
        return types.ElicitResult(action="decline")

    def grows():
        values = [value for value, _ in told]
        return len(values) >= 2 and values == sorted(set(values))

    (place.ws / "f").write_text("one\n")
    words = ["--mode", "workspace-write"]
    async with Client(place.parameters(*words), mode=mode, elicitation_callback=think) as client:
        result = await client.call_tool("bash", SLOW["bash"], progress_callback=tell)
        assert text(result).endswith("step 4\n") and grows(), (result, told)
        assert any("step" in (message or "") for _, message in told), told
        # It ends neither by itself nor by the first signal.
        await bash(client, "trap '' TERM; while :; do sleep 1; done", run_in_background=True)
        for tool in ["job_output", "job_kill"]:
            told.clear()
            result = await client.call_tool(tool, SLOW[tool], progress_callback=tell)
            assert not result.is_error and grows(), (tool, result, told)
        told.clear()
        search = asyncio.create_task(client.call_tool("search", SLOW["search"], progress_callback=tell))
        while not grows() and not search.done():
            await asyncio.sleep(0.1)
        assert grows(), told
        search.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await search
        for tool, arguments in QUICK.items():
            result = await client.call_tool(tool, arguments, progress_callback=tell)
            assert not result.is_error, (tool, result)
    if mode == "legacy":  # where the answer is a call of its own, nothing runs while a person thinks
        async with Client(place.parameters("--mode", "read-only"), mode=mode, elicitation_callback=think) as client:
            for tool in ["write", "edit"]:
                arguments, done = asking(place, tool)
                told.clear()
                await client.call_tool("read", {"file_path": str(place.ws / f"by-{tool}")})
                result = await client.call_tool(tool, {**arguments, **MORE}, progress_callback=tell)
                assert result.is_error and grows() and not done(), (tool, result, told)


async def withdrawal(place, mode):
    """Every tool, withdrawn as soon as it was asked for: nobody waits, and the next call is answered."""
    (place.ws / "f").write_text("one\n")
    quick = {**QUICK, "write": {"file_path": "g", "content": "x"}, "edit": {"file_path": "f", "old_string": "one", "new_string": "1"}}
    async with Client(place.parameters("--mode", "workspace-write"), mode=mode) as client:
        await bash(client, "while :; do sleep 1; done", run_in_background=True)
        for tool in TOOLS:
            for wait in [0, 0.2]:
                call = asyncio.create_task(client.call_tool(tool, {**SLOW, **quick}[tool]))
                await asyncio.sleep(wait)
                call.cancel()
                begun = time.monotonic()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await call
                assert text(await bash(client, "echo next")) == "next\n"
                assert time.monotonic() - begun < 10, tool


async def announcements(place, mode):
    """What another process changes is told, and what goes wrong has an error."""
    heard = []

    async def hear(message):
        heard.append(type(message).__name__)

    async with Client(place.parameters("--mode", "workspace-write"), mode=mode, message_handler=hear) as client:
        stateless = client.protocol_version >= "2026-07-28"
        log = (await client.read_resource("pinfold://log")).contents[0].text
        session = json.loads(log.splitlines()[0])["data"]["id"]
        if not stateless:
            await client.send_ping()
            await client.set_logging_level("debug")
            await client.subscribe_resource("pinfold://policy")
        changes = client.listen(tools_list_changed=True, resource_subscriptions=["pinfold://policy"])
        events = []
        async with changes if stateless else contextlib.nullcontext() as stream:
            words = [PINFOLD, "session", "mode", session, "danger-full-access"]
            subprocess.run(words, env=place.environment(), check=True, capture_output=True)
            if stateless:
                events.append(await anext(aiter(stream)))
                events.append(await anext(aiter(stream)))
            else:
                for _ in range(100):
                    if len(heard) >= 2:
                        break
                    await asyncio.sleep(0.1)
        assert len(heard if not stateless else events) >= 2, (heard, events)
        if not stateless:
            await client.unsubscribe_resource("pinfold://policy")
        fields = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools(cache_mode="bypass")).tools}
        assert "sandbox_permissions" not in fields["bash"], fields
        for wrong in [client.call_tool("rm", {}), client.read_resource("file:///etc/passwd"), client.get_prompt("x")]:
            try:
                await wrong
            except Exception:
                continue
            raise AssertionError("what is not there was answered")


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


def wrong_messages_are_found():
    """The control: the check finds what is wrong."""
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bash"}}
    right = {"content": [{"type": "text", "text": "x"}], "isError": False}

    def said(message):
        lines = [{"from": "client", "line": json.dumps(ask)}, {"from": "server", "line": json.dumps(message)}]
        Book().conversation(lines)

    said({"jsonrpc": "2.0", "id": 1, "result": right})
    said({"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "x"}})
    for wrong in [
        {"id": 1, "result": right},
        {"jsonrpc": "2.0", "id": 2, "result": right},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": "x"}},
        {"jsonrpc": "2.0", "id": 1, "result": {**right, "isError": "no"}},
        {"jsonrpc": "2.0", "id": 1, "result": {**right, "more": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "x", "more": 1}]}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "message": "x"}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
        {"jsonrpc": "2.0", "method": "notifications/unheard", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}},
    ]:
        try:
            said(wrong)
        except Exception:
            continue
        raise AssertionError(f"nothing is found in {wrong}")


def every_message_has_its_schema():
    both = [("done", tool) for tool in TOOLS] + [("refused", tool) for tool in ["bash", "write", "edit"]]
    both += [("complete", method) for method in ["tools/list", "resources/list", "resources/read"]]
    both += [("error", "tools/call"), ("notification", "notifications/progress")]
    asked = ["elicitation/create", "roots/list"]
    told = ["notifications/message", "notifications/tools/list_changed", "notifications/resources/updated", "notifications/cancelled"]
    handshake = [("request", method) for method in asked] + [("notification", method) for method in told]
    handshake += [("complete", method) for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"]]
    stateless = [("input_required", tool) for tool in ["bash", "write", "edit"]] + [("complete", "server/discover")]
    told = ["subscriptions/acknowledged", "tools/list_changed", "resources/updated"]
    stateless += [("notification", f"notifications/{method}") for method in told]
    assert set(BOOK.tools) == set(TOOLS), BOOK.tools.keys()
    lacks = {"2025-11-25": BOOK.lacks("2025-11-25", both + handshake), "2026-07-28": BOOK.lacks("2026-07-28", both + stateless)}
    assert not any(lacks.values()), f"never said: {lacks}"


TESTS = [
    tools,
    resources,
    elicitation,
    late_answers,
    cancellation,
    withdrawal,
    progress,
    announcements,
    roots,
    http,
]


async def main():
    passed = failed = 0
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    for mode in MODES:
        for test in TESTS:
            name = f"python/{mode}/{test.__name__}"
            if only not in name:
                continue
            place = Place()
            try:
                await asyncio.wait_for(test(place, mode), 240)
                BOOK.read(place.said)
                passed += 1
                print(f"test {name} ... ok", flush=True)
            except BaseException as error:  # whatever it is, the test has failed
                failed += 1
                import traceback

                traceback.print_exc()
                print(f"test {name} ... FAILED: {error!r}", flush=True)
            finally:
                place.close()
    for test in [wrong_messages_are_found, every_message_has_its_schema]:
        if only:
            continue
        try:
            test()
            passed += 1
            print(f"test python/{test.__name__} ... ok", flush=True)
        except Exception as error:
            failed += 1
            print(f"test python/{test.__name__} ... FAILED: {error!r}", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored", flush=True)
    sys.exit(1 if failed else 0)


asyncio.run(main())
