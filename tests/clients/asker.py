"""A server whose tools and prompt ask the client in the way of its era, made with the Python SDK 2.x.

Usage: asker.py modern|both http|stdio. With `modern` it refuses the handshake, as a server without the legacy era does.
Over HTTP it listens on a free port and prints its address first. `asker_1.py` has the same.
"""

import json
import socket
import sys
import warnings
from typing import Annotated

import anyio
import uvicorn
from mcp import MCPDeprecationWarning, MCPError, types
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from pydantic import BaseModel, Field

MODERN = "2026-07-28"
# Between the last progress and the result: the TypeScript SDK may lose progress that arrives together with the result.
PAUSE = 0.05
# Sampling and roots are deprecated, but servers still use them.
warnings.simplefilter("ignore", MCPDeprecationWarning)


class Person(BaseModel):
    name: str = Field(description="Your full name", min_length=2)


def prompt(text):
    return types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))


async def person(ctx: Context) -> Elicit[Person]:
    # It runs in each round.
    if not ctx.input_responses:
        await ctx.report_progress(1, 2, "before")
    return Elicit("Who are you?", Person)


def product() -> Sample:
    return Sample([prompt("What is six by seven?")], max_tokens=10, system_prompt="Be brief.")


def poem(who: Annotated[Person, Resolve(person)]) -> Sample:
    return Sample([prompt(f"A poem for {who.name}")], max_tokens=20)


def folders() -> ListRoots:
    return ListRoots()


Who = Annotated[Person, Resolve(person)]
Answer = Annotated[types.CreateMessageResult, Resolve(product)]


async def ask(ctx: Context, who: Annotated[ElicitationResult[Person], Resolve(person)]) -> str:
    await ctx.report_progress(2, 2, "after")
    await anyio.sleep(PAUSE)
    content = who.data.model_dump() if isinstance(who, AcceptedElicitation) else None
    return json.dumps({"action": who.action, "content": content})


async def link(ctx: Context) -> str | types.InputRequiredResult:
    message, url = "Please sign in.", "https://example.com/sign-in"
    if ctx.protocol_version != MODERN:
        return json.dumps({"action": (await ctx.elicit_url(message, url, "sign-in-1")).action})
    answer = (ctx.input_responses or {}).get("sign-in")
    if answer is None:
        params = types.ElicitRequestURLParams(message=message, url=url)
        return types.InputRequiredResult(input_requests={"sign-in": types.ElicitRequest(params=params)})
    return json.dumps({"action": answer.action})


def sample(answer: Answer) -> str:
    return answer.content.text


def roots(found: Annotated[types.ListRootsResult, Resolve(folders)]) -> str:
    return json.dumps([str(root.uri) for root in found.roots])


def twice(who: Who, verse: Annotated[types.CreateMessageResult, Resolve(poem)]) -> str:
    """Asks for the second answer after it has the first."""
    return f"{who.name}: {verse.content.text}"


def together(who: Who, answer: Answer) -> str:
    """Asks both at once."""
    return f"{who.name}: {answer.content.text}"


async def greet(ctx: Context) -> str | types.InputRequiredResult:
    message = "Whom shall I greet?"
    if ctx.protocol_version != MODERN:
        return f"Good morning, {(await ctx.elicit(message, Person)).data.name}!"
    answer = (ctx.input_responses or {}).get("whom")
    if answer is None:
        params = types.ElicitRequestFormParams(message=message, requested_schema=Person.model_json_schema())
        return types.InputRequiredResult(input_requests={"whom": types.ElicitRequest(params=params)})
    return f"Good morning, {answer.content['name']}!"


async def refuse_handshake(ctx, call_next):
    if ctx.method == "initialize":
        data = {"supported": [MODERN], "requested": (ctx.params or {}).get("protocolVersion", "")}
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "there is no handshake here", data)
    return await call_next(ctx)


era, transport = sys.argv[1:]
server = MCPServer("asker", version="1.0.0", middleware=[refuse_handshake] if era == "modern" else [])
server.prompt()(greet)
for tool in [ask, link, sample, roots, twice, together]:
    server.add_tool(tool)


def serve_http():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="info")).run(sockets=[listener])


if transport == "stdio":
    server.run("stdio")
else:
    serve_http()
