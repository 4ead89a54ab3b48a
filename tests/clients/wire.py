"""The protocol without an SDK, for checks that compare bytes: a server's process on its stdio, and an endpoint of the
gateway. Each request returns the text of its `result` as it was sent.
"""

import http.client
import json
import subprocess
from urllib.parse import urlsplit

LEGACY, MODERN = "2025-11-25", "2026-07-28"
INFO = {"name": "wire", "version": "1.0.0"}
META = "io.modelcontextprotocol/"
DECODER = json.JSONDecoder()


def members(text):
    """The members of an object, each as the text of its value."""
    found, at = {}, text.index("{") + 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        if text[at] == "}":
            return found
        key, at = DECODER.raw_decode(text, at)
        at = text.index(":", at) + 1
        at += len(text[at:]) - len(text[at:].lstrip())
        end = DECODER.raw_decode(text, at)[1]
        found[key] = text[at:end]
        at = end


def request(number, method, params, revision, capabilities):
    """A request; without a handshake, each one says who asks."""
    if revision == MODERN:
        who = {"protocolVersion": MODERN, "clientCapabilities": capabilities, "clientInfo": INFO}
        params = {**params, "_meta": {META + key: value for key, value in who.items()}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def result(text):
    answer = members(text)
    assert "result" in answer, text
    return answer["result"]


class Peer:
    """What both ends have in common: a handshake where the revision has one, and numbered requests."""

    def __init__(self, revision, capabilities):
        self.revision, self.capabilities, self.number = revision, capabilities, 0
        self.hello = None

    def greet(self):
        if self.revision == LEGACY:
            hello = {"protocolVersion": LEGACY, "capabilities": self.capabilities, "clientInfo": INFO}
            self.hello = self.ask("initialize", hello)
            self.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            self.hello = self.ask("server/discover", {})

    def offer(self):
        """What the other side said of its capabilities."""
        return members(self.hello)["capabilities"]

    def ask(self, method, params):
        self.number += 1
        return self.exchange(request(self.number, method, params, self.revision, self.capabilities))


class Process(Peer):
    """A server started by this program."""

    def __init__(self, line, variables, revision, capabilities):
        super().__init__(revision, capabilities)
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            line, env=variables, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
        )

    def tell(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def exchange(self, message):
        self.tell(message)
        for line in self.child.stdout:
            answer = json.loads(line)
            if answer.get("id") == message["id"] and "method" not in answer:
                return result(line)
            if answer.get("method") == "roots/list":
                self.tell({"jsonrpc": "2.0", "id": answer["id"], "result": {"roots": []}})
        raise AssertionError(f"the server ended before it answered {message['method']}")

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.terminate()
        self.child.wait()


class Endpoint(Peer):
    """An address of the gateway."""

    def __init__(self, url, revision, capabilities):
        super().__init__(revision, capabilities)
        self.url, self.session = urlsplit(url), None

    def tell(self, message):
        self.post(message)

    def exchange(self, message):
        kind, text = self.post(message)
        if kind.startswith("application/json"):
            return result(text)
        for line in text.splitlines():
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data and json.loads(data).get("id") == message["id"]:
                return result(data)
        raise AssertionError(f"{message['method']} was not answered: {text}")

    def post(self, message):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        if self.number > 1 or self.revision == MODERN:
            headers["Mcp-Protocol-Version"] = self.revision
        if self.revision == MODERN:
            headers["Mcp-Method"] = message["method"]
            if "name" in message["params"]:
                headers["Mcp-Name"] = message["params"]["name"]
        connection = http.client.HTTPConnection(self.url.netloc, timeout=60)
        connection.request("POST", self.url.path, json.dumps(message).encode(), headers)
        response = connection.getresponse()
        self.session = response.getheader("Mcp-Session-Id") or self.session
        text = response.read().decode()
        connection.close()
        return response.getheader("Content-Type") or "", text

    def close(self):
        if self.session:
            connection = http.client.HTTPConnection(self.url.netloc, timeout=60)
            connection.request("DELETE", self.url.path, headers={"Mcp-Session-Id": self.session})
            connection.getresponse().read()
            connection.close()
