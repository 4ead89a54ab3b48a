"""The Python SDK 1.x and LangChain's adapters on top of it, with all capabilities, at legacy servers.

Usage: capable_1.py
"""

from contextlib import asynccontextmanager

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl
from tour import ANSWER, NAME, ROOT, Agent, finish, visit


async def elicit(*_):
    return types.ElicitResult(action="accept", content={"name": NAME})


async def sample(_context, _params):
    text = types.TextContent(type="text", text=ANSWER)
    return types.CreateMessageResult(role="assistant", model="none", content=text)


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri=ROOT, name="harbour")])


class Sdk(Agent):
    session: ClientSession

    def callbacks(self):
        return {"sampling_callback": sample, "list_roots_callback": roots, "message_handler": self.message}

    async def tools(self):
        return {tool.name for tool in (await self.session.list_tools()).tools}

    async def call(self, name, arguments=None):
        result = await self.session.call_tool(name, arguments or {})
        assert not result.isError, result
        return "".join(part.text for part in result.content if part.type == "text")

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
async def sdk(url):
    agent = Sdk()
    async with (
        streamable_http_client(url) as (reading, writing, _),
        ClientSession(reading, writing, elicitation_callback=elicit, **agent.callbacks()) as agent.session,
    ):
        await agent.session.initialize()
        yield agent


@asynccontextmanager
async def langchain(url):
    agent = LangChain()
    place = {"transport": "streamable_http", "url": url, "session_kwargs": agent.callbacks()}
    client = MultiServerMCPClient({"server": place}, callbacks=Callbacks(on_elicitation=elicit))
    async with client.session("server") as agent.session:
        yield agent


async def main():
    await visit("Python SDK 1.x", sdk)
    await visit("LangChain's adapters", langchain)


finish(main())
