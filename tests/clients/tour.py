"""What every Python client with capabilities does at a server of its era: list, call, subscribe, see its own tools change,
and answer elicitation, sampling and roots. The client of each library is an `Agent`.
"""

import asyncio
import json
import logging
import os
import sys
from contextlib import asynccontextmanager

from mcp import types

NOTE = "note://one"
ROOT = "file:///harbour"
NAME, ANSWER = "Ada", "forty-two"
# A long timeout, for a busy machine.
UNTIL_NOTICED = 20
# The libraries log messages of servers, and streams that end with the connection.
logging.disable()


class Agent:
    """A connected client. Subclasses call `notice` for each notification that they get, and keep what servers ask and
    the messages of progress.
    """

    def __init__(self):
        self.noticed, self.changed = [], asyncio.Event()
        self.asked, self.progressed, self.declines = [], [], False

    def elicited(self, params):
        """Keeps the parameters of an elicitation, and returns the answer."""
        self.asked.append(params)
        if self.declines:
            return {"action": "decline"}
        content = None if params.get("mode") == "url" else {"name": NAME}
        return {"action": "accept", "content": content}

    async def progress(self, _done, _total, message):
        self.progressed.append(message)

    def notice(self, *what):
        self.noticed.append(what)
        self.changed.set()

    async def wait_for(self, *what):
        """Waits for a notification, and forgets those that came until then."""
        async with asyncio.timeout(UNTIL_NOTICED):
            while what not in self.noticed:
                self.changed.clear()
                await self.changed.wait()
        self.noticed.clear()

    async def tools(self):
        """The names of all tools."""
        raise NotImplementedError

    async def call(self, name, arguments=None):
        """The text of a tool's result."""
        raise NotImplementedError

    async def prompt(self, name):
        """The text of a prompt."""
        raise NotImplementedError

    @asynccontextmanager
    async def watching(self, uri):
        """Subscribes to a resource, and in the modern era to the list of tools."""
        raise NotImplementedError
        yield


class SdkAgent(Agent):
    """The callbacks of the Python SDK, which are the same in both major versions."""

    def callbacks(self):
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }

    async def elicit(self, _context, params, *_):
        return types.ElicitResult(**self.elicited(plain(params)))

    async def sample(self, _context, params):
        self.asked.append(plain(params))
        text = types.TextContent(type="text", text=ANSWER)
        return types.CreateMessageResult(role="assistant", model="none", content=text)

    async def roots(self, _context):
        return types.ListRootsResult(roots=[types.Root(uri=ROOT, name="harbour")])


def plain(params):
    """The parameters of a request as they were sent."""
    return params.model_dump(mode="json", by_alias=True, exclude_none=True)


async def lists(agent, wanted):
    names = await agent.tools()
    assert wanted <= names, f"not among {len(names)} tools: {', '.join(sorted(wanted - names))}"


async def workshop(agent, other=None):
    """Uses `workshop.py`. `other` is a second session at a server that keeps one for each."""
    await lists(agent, {"say", "touch", "learn", "ask", "sample", "roots"})
    # Without sessions the tool of the previous visit may be listed until the gateway has read the list again.
    async with asyncio.timeout(UNTIL_NOTICED):
        while "learned" in await agent.tools():
            await asyncio.sleep(0.05)
    assert await agent.call("say", {"text": "hé 😀"}) == "hé 😀"
    async with agent.watching(NOTE):
        await agent.call("touch")
        await agent.wait_for("updated", NOTE)
        await agent.call("learn")
        await agent.wait_for("tools")
        assert "learned" in await agent.tools(), "the tool that its own call added is not listed"
        assert await agent.call("learned") == "learned"
        if other:
            assert "learned" not in await other.tools(), "another session sees the tool of this one"
        await agent.call("forget")
        await agent.wait_for("tools")
        assert "learned" not in await agent.tools(), "the removed tool is still listed"
    await questions(agent)


async def questions(agent):
    asked = json.loads(await agent.call("ask"))
    assert asked["action"] == "accept" and asked["content"] == {"name": NAME}, asked
    assert ANSWER in await agent.call("sample")
    assert ROOT in await agent.call("roots")


async def everything(agent, uri):
    """Uses `server-everything`, which lists 13 tools to clients without capabilities."""
    await lists(agent, {"trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"})
    assert await agent.call("echo", {"message": "hé 😀"}) == "Echo: hé 😀"
    async with agent.watching(uri):
        await agent.call("toggle-subscriber-updates")
        await agent.wait_for("updated", uri)
        await agent.call("toggle-subscriber-updates")
    assert NAME in await agent.call("trigger-elicitation-request")
    assert ANSWER in await agent.call("trigger-sampling-request", {"prompt": "What?", "maxTokens": 10})
    # It asks for the roots when the session begins and not during the call, so there are none.
    assert "roots" in await agent.call("get-roots-list")


def places():
    """The addresses of the servers by name: directly, and through the gateway, stateless and stateful."""
    return json.loads(os.environ["ADDRESSES"] or "{}")


async def visit(title, connect, *, modern=False):
    """Uses the servers of the era at each of their addresses. `connect(url)` is a context manager with an `Agent`.

    Legacy sessions are used at once. Without sessions all addresses of a server share what it learned, so modern
    clients use one after the other.
    """

    async def one(name, url):
        try:
            async with asyncio.timeout(90), connect(url) as agent:
                if name.startswith("everything"):
                    await everything(agent, "demo://resource/static/document/features.md")
                elif name.endswith("stateful") and not modern:
                    async with connect(url) as other:
                        await workshop(agent, other)
                else:
                    await workshop(agent)
        except Exception as error:
            return f"{name}: {explain(error)}"

    # server-everything speaks the legacy era only.
    chosen = [(name, url) for name, url in places().items() if not (modern and name.startswith("everything"))]
    if not chosen:
        return
    if modern:
        outcomes = [await one(name, url) for name, url in chosen]
    else:
        outcomes = await asyncio.gather(*(one(name, url) for name, url in chosen))
    report(title, outcomes)


def report(title, outcomes):
    failures = [outcome for outcome in outcomes if outcome]
    for failure in failures:
        print(f"    FAILED: {title}, {failure}")
    print(f"  {title}: all well in {len(outcomes) - len(failures)} of {len(outcomes)} visits", flush=True)
    FAILED.extend(failures)


def finish(tour):
    """Runs all visits of a script, and fails if one did."""
    asyncio.run(tour)
    sys.exit(len(FAILED) > 0)


FAILED = []


def explain(error):
    """The innermost causes: the SDKs raise groups of exceptions."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(explain(inner) for inner in error.exceptions)
    frames, trace = [], error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if code.co_name not in ("same", "call"):
            frames.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    ours = [frame for frame in frames if frame.startswith(("tour", "pairs"))]
    return f"{type(error).__name__} {error} at {ours[-1] if ours else frames[-1:]}"
