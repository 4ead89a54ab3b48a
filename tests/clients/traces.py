"""One trace from a Python client through the gateway to a Python server: all of them export to a collector, which sees one tree.

Usage: traces.py GATEWAY. The gateway with that address is not used: this one needs a collector, so the script starts its own
(the program in TOOLGATE). `traces.py serve stdio|http` is the server. The SDK makes the spans of client and server, OpenTelemetry's
own packages export them and decode them in the collector. Prints what it did; it stops at the first failure.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

REVISION = "2026-07-28"
# How long spans may take to arrive.
ARRIVING = 60
# How long a program may take to end.
ENDING = 60


def export_to(collector, service):
    """Makes this process export each span as soon as it has ended."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)


def serve(transport):
    export_to(os.environ["COLLECTOR"], "server")
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("traced", version="1.0.0")

    @server.tool()
    def add(one: int, other: int) -> str:
        """Adds two numbers."""
        return str(one + other)

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("as it should")

    if transport == "stdio":
        server.run("stdio")
        return
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(config).serve([listener]))


class Collector(BaseHTTPRequestHandler):
    spans = []
    # Notified when spans arrive.
    came = threading.Condition()

    def do_POST(self):
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for group in request.resource_spans:
            service = {it.key: it.value.string_value for it in group.resource.attributes}["service.name"]
            for scope in group.scope_spans:
                with Collector.came:
                    Collector.spans.extend((service, span) for span in scope.spans)
                    Collector.came.notify_all()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def running(line, variables, folder):
    """A program that prints an address first; it ends with the block."""
    environment = {**os.environ, **variables}
    with open(Path(folder, "log"), "ab") as log:
        process = subprocess.Popen(
            line, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        words = process.stdout.readline().split()
        yield next(word for word in words if word.startswith("http://"))
    finally:
        process.terminate()
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def register(gateway, **registration):
    request = Request(f"{gateway}/api/v0/servers", json.dumps(registration).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as response:
        assert response.status == 201, response.status


def arrived(identity, count):
    """The spans of calls of a trace, once there are as many as there should be. The client may read lists, too."""

    def spans():
        found = [(service, span) for service, span in Collector.spans if span.trace_id == identity]
        return [(service, span) for service, span in found if "/list" not in span.name]

    with Collector.came:
        assert Collector.came.wait_for(lambda: len(spans()) >= count, ARRIVING), [
            (service, span.name) for service, span in spans()
        ]
        return spans()


def check_tree(identity, tool, native, is_error):
    """From the agent's own span down to the server's, each span is the only child of the one before."""
    expected = [
        ("client", "agent", Span.SPAN_KIND_INTERNAL),
        ("client", None, Span.SPAN_KIND_CLIENT),
        ("gateway", f"tools/call {tool}", Span.SPAN_KIND_SERVER),
        ("gateway", f"tools/call {native}", Span.SPAN_KIND_CLIENT),
        ("server", f"tools/call {native}", Span.SPAN_KIND_SERVER),
    ]
    spans = arrived(identity, len(expected))
    parent = b""
    for service, name, kind in expected:
        children = [(who, span) for who, span in spans if span.parent_span_id == parent]
        assert len(children) == 1, [(who, span.name) for who, span in children]
        [(who, span)] = children
        assert (who, span.kind) == (service, kind), (who, span.name, span.kind)
        assert name in (None, span.name), (span.name, name)
        if who == "gateway":
            attributes = {it.key: it.value.string_value for it in span.attributes}
            assert attributes["mcp.method.name"] == "tools/call", attributes
            assert attributes["gen_ai.operation.name"] == "execute_tool", attributes
            assert attributes.get("error.type") == ("tool_error" if is_error else None), attributes
            assert (span.status.code == Status.STATUS_CODE_ERROR) == is_error, span.status
            assert span.start_time_unix_nano <= span.end_time_unix_nano
        parent = span.span_id
    assert len(spans) == len(expected), [(who, span.name) for who, span in spans]


async def visit(gateway, mode):
    from mcp import Client

    tracer = trace.get_tracer("traces")
    async with Client(f"{gateway}/mcp", mode=mode) as client:
        for server in ["stdio", "http"]:
            for native, arguments in [("add", {"one": 1, "other": 2}), ("fail", {})]:
                tool = f"{server}__{native}"
                with tracer.start_as_current_span("agent") as span:
                    result = await client.call_tool(tool, arguments)
                assert result.is_error == (native == "fail"), result
                identity = span.get_span_context().trace_id.to_bytes(16, "big")
                await asyncio.to_thread(check_tree, identity, tool, native, native == "fail")
    print(f"  Python SDK in mode {mode}: one tree from client to server")


def main():
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    collector = f"http://127.0.0.1:{listener.server_port}"
    export_to(collector, "client")
    this = [sys.executable, str(Path(__file__).resolve()), "serve"]
    traced = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_SERVICE_NAME": "gateway",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    start = [os.environ["TOOLGATE"], "start", "--host", "127.0.0.1", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        running([*this, "http"], {"COLLECTOR": collector}, folder) as server,
        # It ends first: the server waits for its connections.
        running(start, traced, folder) as gateway,
    ):
        gateway = gateway.rstrip("/")
        process = {"command": this[0], "args": [*this[1:], "stdio"], "env": {"COLLECTOR": collector}}
        register(gateway, name="stdio", transport="stdio", **process)
        register(gateway, name="http", transport="streamable_http", url=server)
        for mode in ["legacy", REVISION]:
            asyncio.run(visit(gateway, mode))


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    main()
