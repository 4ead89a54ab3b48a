"""What every Python client does at servers of each era: it answers what the tools of `asker.py`, `asker_1.py` and
`server-everything` ask. The servers are in `PAIRS`, each with its era and its addresses, which the runner writes.
"""

import asyncio
import json
import os
import uuid

from tour import ANSWER, NAME, ROOT, explain, report

MISSING_CAPABILITY, URL_REQUIRED = -32021, -32042
SIGN_IN = "https://example.com/sign-in"
# A long timeout, for a busy machine.
UNTIL_DONE = 90


async def cross(title, connect, *, modern=False):
    """Visits all servers at once, and the addresses of each one after the other: a server's process may be shared, and
    what it asks could then belong to either of two calls.
    """

    async def one(server):
        return [await outcome(server, place) for place in server["places"] if reachable(server, place, modern)]

    async def outcome(server, place):
        try:
            async with asyncio.timeout(UNTIL_DONE):
                async with connect(place["url"]) as agent:
                    await TOURS[server["kind"]](Caller(agent, place["prefix"]), modern)
                if server["kind"] == "asker":
                    async with connect(place["url"], bare=True) as agent:
                        await undeclared(Caller(agent, place["prefix"]), modern, server["era"])
        except Exception as error:
            return f"{server['name']} {place['name']}: {explain(error)}"

    servers = json.loads(os.environ.get("PAIRS") or "[]")
    if servers:
        visited = await asyncio.gather(*(one(server) for server in servers))
        report(title, [outcome for outcomes in visited for outcome in outcomes])


def reachable(server, place, modern):
    """Without the gateway a client needs a server of its own era."""
    return place["name"] != "direct" or server["era"] in ("both", "modern" if modern else "legacy")


class Caller:
    """Calls the tools of one server, and forgets before each call what the agent was asked until then."""

    def __init__(self, agent, prefix):
        self.agent, self.prefix = agent, prefix

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


async def asker(caller, modern):
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


async def everything(caller, modern):
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
