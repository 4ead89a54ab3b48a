"""What every Python client does at servers of each era: it answers what the tools of `asker.py`, `asker_1.py` and
`server-everything` ask. The runner writes all addresses into `PAIRS`, each with its servers.
"""

import asyncio
import itertools
import json
import os
import uuid

from tour import ANSWER, NAME, ROOT, explain, report

MISSING_CAPABILITY, URL_REQUIRED = -32021, -32042
SIGN_IN = "https://example.com/sign-in"
# A long timeout, for a busy machine.
UNTIL_DONE = 90


async def cross(title, connect, *, modern=False):
    """Visits all places with one server at once, and then those with all servers: a server's process may be shared, and
    what it asks could then belong to either of two calls. `connect(url, bare)` is a context manager with an `Agent`.
    """
    places = [place for place in json.loads(os.environ.get("PAIRS") or "[]") if reachable(place, modern)]
    if not places:
        return
    alone = [place for place in places if len(place["servers"]) == 1]
    shared = [place for place in places if len(place["servers"]) > 1]
    visited = await asyncio.gather(*(use(place, connect, modern) for place in alone))
    visited += [await use(place, connect, modern) for place in shared]
    report(title, [outcome for outcomes in visited for outcome in outcomes])


def reachable(place, modern):
    """Without the gateway a client needs a server of its own era."""
    return not place["direct"] or place["servers"][0]["era"] in ("both", "modern" if modern else "legacy")


async def use(place, connect, modern):
    """Uses the servers of a place one after the other: in one session with all capabilities, and in one with none."""
    outcomes = []

    async def step(server, tour, agent):
        try:
            async with asyncio.timeout(UNTIL_DONE):
                await tour(Caller(agent, server["prefix"]), modern, server["era"])
                outcomes.append(None)
        except Exception as error:
            outcomes.append(f"{server['name']} at {place['url']}: {tour.__name__}: {explain(error)}")

    # Without the gateway the server of SDK 1.x does not look at the capabilities.
    is_checked = [server["kind"] == "asker" and not place["direct"] for server in place["servers"]]
    try:
        async with connect(place["url"]) as agent:
            for server in place["servers"]:
                await step(server, TOURS[server["kind"]], agent)
        async with connect(place["url"], bare=True) as agent:
            for server in itertools.compress(place["servers"], is_checked):
                await step(server, undeclared, agent)
    except Exception as error:
        outcomes.append(f"{place['url']}: {explain(error)}")
    return outcomes


class Caller:
    """Calls the tools of one server, and forgets before each call what the agent was asked until then."""

    def __init__(self, agent, prefix):
        self.agent, self.prefix = agent, prefix
        agent.declines = False

    async def call(self, name, arguments=None):
        self.agent.asked.clear()
        self.agent.progressed.clear()
        return await self.agent.call(self.prefix + name, arguments)

    async def refusal(self, name, arguments=None):
        """The code and the text of an error."""
        try:
            said = await self.call(name, arguments)
        except Exception as error:
            return getattr(getattr(error, "error", None), "code", None), str(error)
        raise AssertionError(f"{name} was not refused: {said}")


async def asker(caller, modern, _era):
    agent = caller.agent
    same(json.loads(await caller.call("ask")), {"action": "accept", "content": {"name": NAME}})
    [form] = agent.asked
    same(form["message"], "Who are you?")
    same(form["requestedSchema"]["properties"]["name"]["description"], "Your full name")
    same(form["requestedSchema"]["properties"]["name"]["minLength"], 2)
    same(form["requestedSchema"]["required"], ["name"])
    same(agent.progressed, ["before", "after"])

    agent.declines = True
    same(json.loads(await caller.call("ask")), {"action": "decline", "content": None})
    agent.declines = False

    same(json.loads(await caller.call("link")), {"action": "accept"})
    [link] = agent.asked
    same((link["mode"], link["message"], link["url"]), ("url", "Please sign in.", SIGN_IN))
    assert modern or link["elicitationId"], link

    same(await caller.call("sample"), ANSWER)
    [request] = agent.asked
    same((said(request), request["maxTokens"]), ("What is six by seven?", 10))
    same(request["systemPrompt"], "Be brief.")

    same(json.loads(await caller.call("roots")), [ROOT])

    agent.asked.clear()
    same(await agent.prompt(f"{caller.prefix}greet"), f"Good morning, {NAME}!")
    same([said(request) for request in agent.asked], ["Whom shall I greet?"])

    same(await caller.call("twice"), f"{NAME}: {ANSWER}")
    same([said(request) for request in agent.asked], ["Who are you?", f"A poem for {NAME}"])
    same(await caller.call("together"), f"{NAME}: {ANSWER}")
    same(sorted(said(request) for request in agent.asked), ["What is six by seven?", "Who are you?"])


async def undeclared(caller, modern, era):
    """Without capabilities nothing is asked."""
    for name, capability in [("ask", "elicit"), ("sample", "sampl")]:
        code, text = await caller.refusal(name)
        assert capability in text.lower(), text
        assert not modern or code == MISSING_CAPABILITY, (code, text)
    if modern and era == "legacy":
        same(json.loads(await caller.call("roots")), [])


async def everything(caller, modern, _era):
    """`server-everything` asks for the roots when a session begins, not during a call."""
    agent = caller.agent
    assert NAME in await caller.call("trigger-elicitation-request")
    [form] = agent.asked
    same(form["requestedSchema"]["properties"]["name"]["type"], "string")
    agent.declines = True
    assert "declined" in await caller.call("trigger-elicitation-request")
    agent.declines = False
    assert ANSWER in await caller.call("trigger-sampling-request", {"prompt": "What?", "maxTokens": 10})
    [request] = agent.asked
    assert "What?" in said(request), request

    visit = {"url": SIGN_IN, "message": "Please sign in."}
    assert "accept" in await caller.call("trigger-url-elicitation", visit)
    same([asked["url"] for asked in agent.asked], [SIGN_IN])
    # The server refuses the call until the user has opened another address. It knows the call again by its id.
    visit = {**visit, "errorPath": True, "elicitationId": str(uuid.uuid4())}
    if modern:
        assert "accept" in await caller.call("trigger-url-elicitation", visit)
        first, second = [asked["url"] for asked in agent.asked]
        assert first != SIGN_IN and second == SIGN_IN, (first, second)
    else:
        same((await caller.refusal("trigger-url-elicitation", visit))[0], URL_REQUIRED)


def said(request):
    """The text of a question: of an elicitation or of the first message for a model."""
    if "messages" not in request:
        return request["message"]
    content = request["messages"][0]["content"]
    return (content[0] if isinstance(content, list) else content)["text"]


def same(found, wanted):
    assert found == wanted, f"{found!r}, not {wanted!r}"


TOURS = {"asker": asker, "everything": everything}
