"""A legacy server whose tools and prompt ask the client, made with the Python SDK 1.x. `asker.py` has the same.

Usage: asker_1.py http|sse|stdio. Over HTTP and SSE it listens on a free port and prints its address first.
"""

import asyncio
import json
import socket
import sys

import uvicorn
from mcp import types
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

# Between the last progress and the result: the TypeScript SDK may lose progress that arrives together with the result.
PAUSE = 0.05


class Person(BaseModel):
    name: str = Field(description="Your full name", min_length=2)


def prompt(text):
    return types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))


async def person(ctx):
    await ctx.report_progress(1, 2, "before")
    return await ctx.elicit("Who are you?", Person)


async def sampled(ctx, text, limit, **options):
    return (await ctx.session.create_message([prompt(text)], max_tokens=limit, **options)).content.text


async def product(ctx, **options):
    return await sampled(ctx, "What is six by seven?", 10, system_prompt="Be brief.", **options)


async def ask(ctx: Context) -> str:
    who = await person(ctx)
    await ctx.report_progress(2, 2, "after")
    await asyncio.sleep(PAUSE)
    content = who.data.model_dump() if isinstance(who, AcceptedElicitation) else None
    return json.dumps({"action": who.action, "content": content})


async def link(ctx: Context) -> str:
    answer = await ctx.elicit_url("Please sign in.", "https://example.com/sign-in", "sign-in-1")
    return json.dumps({"action": answer.action})


async def sample(ctx: Context) -> str:
    # Without the id of the call, as in most servers: over HTTP it then comes on the stream of the session.
    return await product(ctx)


async def roots(ctx: Context) -> str:
    return json.dumps([str(root.uri) for root in (await ctx.session.list_roots()).roots])


async def twice(ctx: Context) -> str:
    """Asks for the second answer after it has the first."""
    name = (await person(ctx)).data.name
    return f"{name}: {await sampled(ctx, f'A poem for {name}', 20, related_request_id=ctx.request_id)}"


async def together(ctx: Context) -> str:
    """Asks both at once."""
    who, answer = await asyncio.gather(person(ctx), product(ctx, related_request_id=ctx.request_id))
    return f"{who.data.name}: {answer}"


async def greet(ctx: Context) -> str:
    return f"Good morning, {(await ctx.elicit('Whom shall I greet?', Person)).data.name}!"


server = FastMCP("asker")
server.prompt()(greet)
for tool in [ask, link, sample, roots, twice, together]:
    server.add_tool(tool)

transport = sys.argv[1]
if transport == "stdio":
    server.run("stdio")
else:
    path, app = {"http": ("/mcp", server.streamable_http_app), "sse": ("/sse", server.sse_app)}[transport]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app(), log_level="info")).run(sockets=[listener])
