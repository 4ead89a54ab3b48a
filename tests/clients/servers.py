"""Real servers, directly on their stdio and through the gateway: lists and harmless calls have the same bytes.

Usage: servers.py GATEWAY, in the folder with `node_modules`, with the path of Node in `NODE`. Prints what it did, and fails at the end, so that one run shows all failures.

What the contract changes: the `id`, the order of the members of a list's result, and in a list of the modern era
`ttlMs` and `cacheScope`, since the gateway answers lists from memory and says itself how long they are good. The result
of a call is compared as a whole.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from wire import LEGACY, MODERN, Endpoint, Process, members

GATEWAY, NODE = sys.argv[1], os.environ["NODE"]
PROGRAMS = Path(sys.executable).parent
OWN_OF_THE_GATEWAY = {LEGACY: set(), MODERN: {"ttlMs", "cacheScope"}}
LISTS = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list"}
NOTHING = {}
AT_ONCE = 3
ALL = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html><body><h1>Harbour</h1><p>Two boats.</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def package(name):
    return [NODE, str(Path("node_modules/@modelcontextprotocol", name, "dist/index.js").resolve())]


def python(name, *words):
    return [str(PROGRAMS / name), *words]


def repository(folder):
    """A repository with one commit."""
    folder.mkdir()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "init.defaultBranch=main"]
    for words in [["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "Begin"]]:
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return str(folder)


def servers(folder, page):
    """Name, command, calls, and the eras and capabilities to use, of each server."""
    files, legacy = folder / "files", [(LEGACY, NOTHING)]
    both = [(LEGACY, NOTHING), (MODERN, NOTHING)]
    files.mkdir()
    (files / "note.txt").write_text("hé 😀\n")
    git = repository(folder / "repository")
    thought = {"thought": "One step.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    noon = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return [
        (
            "everything",
            [*package("server-everything"), "stdio"],
            [
                ("echo", {"message": "hé 😀"}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-annotated-message", {"messageType": "error", "includeImage": True}),
                ("get-sum", {"a": "no number"}),
            ],
            [(LEGACY, NOTHING), (LEGACY, ALL)],
        ),
        (
            "filesystem",
            [*package("server-filesystem"), str(files)],
            [("list_allowed_directories", {}), ("read_text_file", {"path": str(files / "note.txt")})],
            legacy,
        ),
        ("memory", package("server-memory"), [("read_graph", {}), ("search_nodes", {"query": "x"})], legacy),
        ("sequential-thinking", package("server-sequential-thinking"), [("sequentialthinking", thought)], legacy),
        ("time", python("mcp-server-time", "--local-timezone=UTC"), [("convert_time", noon)], both),
        (
            "git",
            python("mcp-server-git", "--repository", git),
            [("git_status", {"repo_path": git}), ("git_log", {"repo_path": git})],
            both,
        ),
        (
            "fetch",
            python("mcp-server-fetch", "--allow-private-ips"),
            [("fetch", {"url": page, "raw": True}), ("fetch", {"url": "no address"})],
            both,
        ),
    ]


def register(name, line, variables):
    body = {"name": name, "transport": "stdio", "command": line[0], "args": line[1:], "env": variables}
    url, kind = f"{GATEWAY}/api/v0/servers", {"Content-Type": "application/json"}
    try:
        urlopen(Request(url, json.dumps(body).encode(), kind), timeout=60).close()
    except HTTPError as refusal:
        raise AssertionError(f"{name} could not be registered: {refusal.read().decode()}") from None


def difference(direct, gateway, own):
    """Compares two results member by member, without those that are the gateway's own, and tells the first difference."""
    direct, gateway = members(direct), members(gateway)
    for key in [*direct, *gateway]:
        if key in own:
            continue
        one, other = direct.get(key), gateway.get(key)
        if one is None or other is None:
            return f'"{key}" comes only from the {"gateway" if one is None else "server"}: {(one or other)[:300]}'
        if one != other:
            at = next((index for index, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), 0)
            start = max(0, at - 80)
            return f'"{key}" differs: {one[start : at + 200]!r} is {other[start : at + 200]!r} behind the gateway'
    return None


def compare(name, line, variables, calls, revision, capabilities):
    """Returns the number of differences."""
    title = f"{name}, {revision}{' with capabilities' if capabilities else ''}"
    direct = Process(line, {**os.environ, **variables}, revision, capabilities)
    gateway = Endpoint(f"{GATEWAY}/v0/servers/real-{name}/mcp", revision, capabilities)
    counts, different = [], {}
    try:
        direct.greet()
        gateway.greet()
        offered = json.loads(direct.offer())
        for kind, method in LISTS.items():
            if kind in offered:
                one, other = direct.ask(method, {}), gateway.ask(method, {})
                different[kind] = difference(one, other, OWN_OF_THE_GATEWAY[revision])
                counts.append(f"{len(json.loads(members(one)[kind]))} {kind}")
        for tool, arguments in calls:
            call = {"name": tool, "arguments": arguments}
            one, other = direct.ask("tools/call", call), gateway.ask("tools/call", call)
            different[f"{tool} {arguments}"] = None if one == other else f"{one} is {other} behind the gateway"
    finally:
        direct.close()
        gateway.close()
    lines = [f"  {title}: {', '.join(counts)}, {len(calls)} calls compared"]
    lines += [f"    FAILED: {title}: {part}: {text}" for part, text in different.items() if text]
    print("\n".join(lines), flush=True)
    return len(lines) - 1


def visit(name, line, calls, ways, folder):
    """Returns the number of differences of one server."""
    # The two processes must not share a memory.
    memories = [{"MEMORY_FILE_PATH": str(folder / f"{side}.jsonl")} for side in ("direct", "gateway")]
    register(f"real-{name}", line, memories[1])
    return sum(compare(name, line, memories[0], calls, *way) for way in ways)


def main():
    pages = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        folder = Path(folder)
        all_servers = servers(folder, f"http://127.0.0.1:{pages.server_port}/")
        visits = [pool.submit(visit, *server, folder) for server in all_servers]
        failures = sum(future.result() for future in visits)
    sys.exit(failures > 0)


main()
