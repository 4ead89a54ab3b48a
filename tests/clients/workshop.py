"""A server of both eras, made with the Python SDK 2.x, whose lists depend on the client's capabilities and on its session.

Usage: workshop.py stdio|http. Over HTTP it listens on a free port and prints its address first. A tool that asks the
client is listed only to clients that declare the capability. `learn` adds the tool `learned` to the session that calls
it (without sessions: to all), `forget` removes it, and `touch` changes the resource.
"""

import socket
import sys
import warnings

import anyio
import uvicorn
from mcp import MCPDeprecationWarning, MCPError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.message import ServerMessageMetadata

MODERN = "2026-07-28"
NOTE = "note://one"
# Sampling and roots are deprecated, but clients still have them.
warnings.simplefilter("ignore", MCPDeprecationWarning)

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="What is six by seven?"))
# The capability, the request and the type of its answer, for each tool that asks the client.
ASKING = {
    "ask": (
        "elicitation",
        types.ElicitRequest(params=types.ElicitRequestFormParams(message="Who?", requested_schema=SCHEMA)),
        types.ElicitResult,
    ),
    "sample": (
        "sampling",
        types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[QUESTION], max_tokens=10)),
        types.CreateMessageResult,
    ),
    "roots": ("roots", types.ListRootsRequest(), types.ListRootsResult),
}
PLAIN = ["say", "touch", "learn", "forget"]

bus = InMemorySubscriptionBus()
learned, subscribed = set(), set()


def is_modern(ctx):
    return ctx.protocol_version == MODERN


def session(ctx):
    """The session of a request. A process is one session, and all modern requests are."""
    return None if is_modern(ctx) or ctx.request is None else ctx.request.headers.get("mcp-session-id")


def names(ctx):
    declared = ctx.session.client_capabilities
    asking = [name for name, (need, *_) in ASKING.items() if declared and getattr(declared, need) is not None]
    return [*PLAIN, *asking, *(["learned"] if session(ctx) in learned else [])]


def text(said):
    return types.CallToolResult(content=[types.TextContent(type="text", text=said)])


async def list_tools(ctx, _params):
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in names(ctx)])


async def announce_tools(ctx):
    await bus.publish(ToolsListChanged())
    if not is_modern(ctx):
        await ctx.session.send_tool_list_changed()


async def touch(ctx):
    await bus.publish(ResourceUpdated(uri=NOTE))
    if (session(ctx), NOTE) in subscribed:
        await ctx.session.send_resource_updated(NOTE)


async def ask(ctx, params, request, kind):
    """Asks the client in the way of its era, and returns the answer or what must be asked first."""
    if not is_modern(ctx):
        metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
        return await ctx.session.send_request(request, kind, metadata=metadata)
    answer = (params.input_responses or {}).get("answer")
    return answer or types.InputRequiredResult(input_requests={"answer": request})


async def call_tool(ctx, params):
    if params.name not in names(ctx):
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name}")
    if params.name in ASKING:
        _, request, kind = ASKING[params.name]
        answer = await ask(ctx, params, request, kind)
        return answer if isinstance(answer, types.InputRequiredResult) else text(answer.model_dump_json())
    match params.name:
        case "touch":
            await touch(ctx)
        case "learn":
            learned.add(session(ctx))
            await announce_tools(ctx)
        case "forget":
            learned.discard(session(ctx))
            await announce_tools(ctx)
    return text((params.arguments or {}).get("text") or params.name)


async def list_resources(_ctx, _params):
    return types.ListResourcesResult(resources=[types.Resource(name="note", uri=NOTE)])


async def read_resource(_ctx, params):
    contents = types.TextResourceContents(uri=params.uri, text="one")
    return types.ReadResourceResult(contents=[contents])


async def subscribe(ctx, params):
    # server-everything asks for the roots a moment after the handshake, and so during whatever the client does first.
    if ctx.session.client_capabilities.roots is not None:
        _, request, kind = ASKING["roots"]
        await ask(ctx, params, request, kind)
    subscribed.add((session(ctx), str(params.uri)))
    return types.EmptyResult()


async def unsubscribe(ctx, params):
    subscribed.discard((session(ctx), str(params.uri)))
    return types.EmptyResult()


server = Server(
    "workshop",
    version="1.0.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_subscriptions_listen=ListenHandler(bus),
)


async def serve_stdio():
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


def serve_http():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="info")).run(sockets=[listener])


if sys.argv[1] == "stdio":
    anyio.run(serve_stdio)
else:
    serve_http()
