"""FastMCP's client with all capabilities, in both eras, at servers of its era. Usage: capable_fastmcp.py"""

import asyncio
import warnings
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from mcp import MCPDeprecationWarning
from mcp.client.subscriptions import ResourceUpdated, listen
from tour import ANSWER, NAME, ROOT, Agent, finish, visit

REVISION = "2026-07-28"
# Revision 2026-07-28 removes some features that the legacy mode tests.
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def elicit(_message, _kind, _params, _context):
    return {"name": NAME}


async def sample(_messages, _params, _context):
    return ANSWER


class FastMCP(Agent, MessageHandler):
    client: Client

    async def tools(self):
        return {tool.name for tool in await self.client.list_tools(cache_mode="bypass")}

    async def call(self, name, arguments=None):
        result = await self.client.call_tool(name, arguments or {})
        return "".join(part.text for part in result.content if part.type == "text")

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
    async def at(url):
        agent = FastMCP()
        handlers = {"elicitation_handler": elicit, "sampling_handler": sample, "message_handler": agent}
        async with Client(url, mode=mode, roots=[ROOT], **handlers) as agent.client:
            yield agent

    return at


async def main():
    await visit("FastMCP, legacy", connect("legacy"))
    await visit(f"FastMCP, {REVISION}", connect(REVISION), modern=True)


finish(main())
