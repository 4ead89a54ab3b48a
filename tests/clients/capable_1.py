"""The Python SDK 1.x and LangChain's adapters on top of it, with all capabilities.

Usage: capable_1.py
"""

from contextlib import asynccontextmanager

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pairs import cross
from pydantic import AnyUrl
from tour import SdkAgent, finish, visit


class Sdk(SdkAgent):
    session: ClientSession

    async def tools(self):
        return {tool.name for tool in (await self.session.list_tools()).tools}

    async def call(self, name, arguments=None):
        result = await self.session.call_tool(name, arguments or {}, progress_callback=self.progress)
        assert not result.isError, result
        return "".join(part.text for part in result.content if part.type == "text")

    async def prompt(self, name):
        return (await self.session.get_prompt(name)).messages[0].content.text

    @asynccontextmanager
    async def watching(self, uri):
        await self.session.subscribe_resource(AnyUrl(uri))
        yield
        await self.session.unsubscribe_resource(AnyUrl(uri))

    async def message(self, message):
        match getattr(message, "root", None):
            case types.ResourceUpdatedNotification(params=params):
                self.notice("updated", str(params.uri))
            case types.ToolListChangedNotification():
                self.notice("tools")


class LangChain(Sdk):
    async def tools(self):
        return {tool.name for tool in await load_mcp_tools(self.session)}

    async def call(self, name, arguments=None):
        tools = {tool.name: tool for tool in await load_mcp_tools(self.session)}
        content = await tools[name].ainvoke(arguments or {})
        return "".join(part["text"] for part in content if part["type"] == "text")


@asynccontextmanager
async def sdk(url, bare=False):
    agent = Sdk()
    callbacks = {} if bare else agent.callbacks()
    async with (
        streamable_http_client(url) as (reading, writing, _),
        ClientSession(reading, writing, message_handler=agent.message, **callbacks) as agent.session,
    ):
        await agent.session.initialize()
        yield agent


@asynccontextmanager
async def langchain(url):
    agent = LangChain()
    options = {**agent.callbacks(), "message_handler": agent.message}
    # The adapters have a callback of their own for elicitation.
    elicit = options.pop("elicitation_callback")
    place = {"transport": "streamable_http", "url": url, "session_kwargs": options}
    client = MultiServerMCPClient({"server": place}, callbacks=Callbacks(on_elicitation=elicit))
    async with client.session("server") as agent.session:
        yield agent


async def main():
    await visit("Python SDK 1.x", sdk)
    await visit("LangChain's adapters", langchain)
    await cross("Python SDK 1.x", sdk)


finish(main())
