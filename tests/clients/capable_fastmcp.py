"""FastMCP's client with all capabilities, in both eras. Usage: capable_fastmcp.py"""

import asyncio
import warnings
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.messages import MessageHandler
from mcp import MCPDeprecationWarning
from mcp.client.subscriptions import ResourceUpdated, listen
from pairs import cross
from tour import ANSWER, ROOT, Agent, finish, plain, visit

REVISION = "2026-07-28"
# Revision 2026-07-28 removes some features that the legacy mode tests.
warnings.simplefilter("ignore", MCPDeprecationWarning)


class FastMCP(Agent, MessageHandler):
    client: Client

    async def elicit(self, _message, _kind, params, _context):
        return ElicitResult(**self.elicited(plain(params)))

    async def sample(self, _messages, params, _context):
        self.asked.append(plain(params))
        return ANSWER

    async def tools(self):
        return {tool.name for tool in await self.client.list_tools(cache_mode="bypass")}

    async def call(self, name, arguments=None):
        result = await self.client.call_tool(name, arguments or {}, progress_handler=self.progress)
        return "".join(part.text for part in result.content if part.type == "text")

    async def prompt(self, name):
        return (await self.client.get_prompt(name)).messages[0].content.text

    @asynccontextmanager
    async def watching(self, uri):
        # The library has no subscriptions of its own, but gives access to the session.
        session = self.client.session
        if self.client.mode == "legacy":
            await session.subscribe_resource(uri)
            yield
            await session.unsubscribe_resource(uri)
            return
        async with listen(session, tools_list_changed=True, resource_subscriptions=[uri]) as events:
            reader = asyncio.create_task(self.read(events))
            yield
            reader.cancel()

    async def read(self, events):
        async for event in events:
            self.notice(*(("updated", str(event.uri)) if isinstance(event, ResourceUpdated) else ("tools",)))

    async def on_resource_updated(self, message):
        self.notice("updated", str(message.params.uri))

    async def on_tool_list_changed(self, _message):
        self.notice("tools")


def connect(mode):
    @asynccontextmanager
    async def at(url, bare=False):
        agent = FastMCP()
        handlers = {"elicitation_handler": agent.elicit, "sampling_handler": agent.sample, "roots": [ROOT]}
        options = {} if bare else handlers
        async with Client(url, mode=mode, message_handler=agent, **options) as agent.client:
            yield agent

    return at


async def main():
    for go in [visit, cross]:
        await go("FastMCP, legacy", connect("legacy"))
        await go(f"FastMCP, {REVISION}", connect(REVISION), modern=True)


finish(main())
