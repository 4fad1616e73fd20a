"""Holds what a server said against the protocol: every message against the schema of the revision that was spoken.

The models are those of the official Python SDK (`mcp_types`), which generates one set for each revision from the schema that the
protocol publishes, and names its digest. Beyond that schema, which lets a message carry more than it knows, a member that the
revision does not know is a finding here.
"""

import collections
import json

import mcp_types._v2025_11_25 as handshake
import mcp_types._v2026_07_28 as stateless
from jsonschema import Draft202012Validator
from mcp_types import methods
from pydantic import TypeAdapter

VERSION = "io.modelcontextprotocol/protocolVersion"
ERRORS = {"2025-11-25": handshake.JSONRPCErrorResponse, "2026-07-28": stateless.JSONRPCErrorResponse}


def unknown(said, known, where):
    """What stands in a message and is not in the same message as the revision knows it."""
    if isinstance(said, dict) and isinstance(known, dict):
        for key, value in said.items():
            if key not in known and value is not None:
                yield f"{where}.{key}"
            elif key in known:
                yield from unknown(value, known[key], f"{where}.{key}")
    if isinstance(said, list) and isinstance(known, list):
        for number, (one, other) in enumerate(zip(said, known)):
            yield from unknown(one, other, f"{where}[{number}]")


def whole(model, message):
    """Without conversions: a text is no number, and no truth value either."""
    adapter = TypeAdapter(model)
    value = adapter.validate_json(json.dumps(message), strict=True, by_name=False)
    more = list(unknown(message, adapter.dump_python(value, by_alias=True, mode="json", exclude_none=True), ""))
    assert not more, f"the revision does not know {more}: {message}"


class Book:
    """Everything that was said, and what kinds of it there were."""

    def __init__(self):
        self.seen = collections.Counter()
        self.tools = {}

    def read(self, folder):
        for book in sorted(folder.glob("*.jsonl")):
            self.conversation([json.loads(line) for line in book.read_text().splitlines()])

    def conversation(self, lines):
        asked, version = {}, "2025-11-25"
        for entry in lines:
            assert not (entry["from"] == "server" and entry.get("cut")), f"half a line: {entry['line'][:300]}"
            if entry["from"] == "client":
                message = json.loads(entry["line"])
                if "method" in message and "id" in message:
                    version = (message.get("params") or {}).get("_meta", {}).get(VERSION, version)
                    asked[message["id"]] = (message["method"], version, message.get("params") or {})
                continue
            message = json.loads(entry["line"])
            assert message["jsonrpc"] == "2.0", message
            self.said(message, asked, version)

    def said(self, message, asked, version):
        if "method" in message and "id" in message:
            assert set(message) <= {"jsonrpc", "id", "method", "params"}, message
            whole(methods.SERVER_REQUESTS[message["method"], version], message)
            self.seen[version, "request", message["method"]] += 1
        elif "method" in message:
            whole(methods.SERVER_NOTIFICATIONS[message["method"], version], message)
            self.seen[version, "notification", message["method"]] += 1
        elif "error" in message:
            whole(ERRORS[version], message)
            method = asked[message["id"]][0] if "id" in message else None
            self.seen[version, "error", method] += 1
        else:
            assert set(message) == {"jsonrpc", "id", "result"}, message
            self.result(message["result"], *asked[message["id"]])

    def result(self, result, method, version, params):
        whole(methods.SERVER_RESULTS[method, version], result)
        kind = result.get("resultType", "complete")
        name = params.get("name")
        if method == "tools/list":
            for tool in result["tools"]:
                for schema in ["inputSchema", "outputSchema"]:
                    if schema in tool:
                        Draft202012Validator.check_schema(tool[schema])
                self.tools[tool["name"]] = tool
        if method == "tools/call" and kind == "complete":
            tool = self.tools.get(name, {})
            if "outputSchema" in tool and "structuredContent" in result:
                Draft202012Validator(tool["outputSchema"]).validate(result["structuredContent"])
            kind = "refused" if result.get("isError") else "done"
        self.seen[version, kind, name or method] += 1

    def lacks(self, version, wanted):
        return [entry for entry in wanted if not self.seen[(version, *entry)]]
