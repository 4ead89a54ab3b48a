"""The Python SDK 2.x with all capabilities, in both eras. Usage: capable.py"""

import asyncio
import warnings
from contextlib import asynccontextmanager

from mcp import Client, MCPDeprecationWarning, types
from mcp.client.subscriptions import ResourceUpdated
from pairs import cross
from tour import SdkAgent, finish, visit

REVISION = "2026-07-28"
# Revision 2026-07-28 removes some features that the legacy mode tests.
warnings.simplefilter("ignore", MCPDeprecationWarning)


class Sdk(SdkAgent):
    client: Client

    async def tools(self):
        return {tool.name for tool in (await self.client.list_tools(cache_mode="bypass")).tools}

    async def call(self, name, arguments=None):
        result = await self.client.call_tool(name, arguments or {}, progress_callback=self.progress)
        assert not result.is_error, result
        return "".join(part.text for part in result.content if part.type == "text")

    async def prompt(self, name):
        return (await self.client.get_prompt(name)).messages[0].content.text

    @asynccontextmanager
    async def watching(self, uri):
        if self.client.protocol_version != REVISION:
            await self.client.subscribe_resource(uri)
            yield
            await self.client.unsubscribe_resource(uri)
            return
        async with self.client.listen(tools_list_changed=True, resource_subscriptions=[uri]) as events:
            assert events.honored.tools_list_changed and events.honored.resource_subscriptions == [uri], events.honored
            reader = asyncio.create_task(self.read(events))
            yield
            reader.cancel()

    async def read(self, events):
        async for event in events:
            self.notice(*(("updated", str(event.uri)) if isinstance(event, ResourceUpdated) else ("tools",)))

    async def message(self, message):
        if isinstance(message, types.ResourceUpdatedNotification):
            self.notice("updated", str(message.params.uri))
        elif isinstance(message, types.ToolListChangedNotification):
            self.notice("tools")


def connect(mode):
    @asynccontextmanager
    async def at(url, bare=False):
        agent = Sdk()
        callbacks = {} if bare else agent.callbacks()
        async with Client(url, mode=mode, message_handler=agent.message, **callbacks) as agent.client:
            yield agent

    return at


async def main():
    for go in [visit, cross]:
        await go("Python SDK 2.x, legacy", connect("legacy"))
        await go(f"Python SDK 2.x, {REVISION}", connect(REVISION), modern=True)


finish(main())
