"""Starts the conformance server that the Python SDK ships in its source package, of either major version.

Usage: reference.py FOLDER http|sse|stdio. FOLDER has the package `mcp_everything_server`. The server's own command
listens on a fixed port only; here it listens on a free one and prints its address first.
"""

import inspect
import socket
import sys

import uvicorn

FOLDER, TRANSPORT = sys.argv[1:]
sys.path.insert(0, FOLDER)

from mcp_everything_server.server import event_store, mcp  # noqa: E402

# The options that its own command passes; version 1 of the SDK takes them in the constructor instead.
OPTIONS = {"event_store": event_store, "retry_interval": 100}


def streamable_http_app():
    accepted = inspect.signature(mcp.streamable_http_app).parameters
    return mcp.streamable_http_app(**{name: value for name, value in OPTIONS.items() if name in accepted})


def serve(app, path):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    # Before the address is printed: connections then wait for the server instead of being refused.
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="info")).run(sockets=[listener])


if TRANSPORT == "stdio":
    mcp.run("stdio")
elif TRANSPORT == "sse":
    serve(mcp.sse_app(), "/sse")
else:
    serve(streamable_http_app(), "/mcp")
