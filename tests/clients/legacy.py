"""The Python SDK as a client of the gateway, in its legacy mode, with every server behind it.

Usage: legacy.py GATEWAY. Prints what it did; it stops at the first failure.
"""

import asyncio
import sys
import warnings

from bridge import bridge
from mcp import Client, MCPDeprecationWarning, MCPError, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client

GATEWAY = sys.argv[1]
# Revision 2026-07-28 removes some features that the legacy mode tests.
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content={"username": "Ada"})


async def sample(_context, _params):
    text = types.TextContent(type="text", text="forty-two")
    return types.CreateMessageResult(role="assistant", model="none", content=text)


async def tour(client, server):
    def call(name, arguments=None, **options):
        return client.call_tool(f"{server}__{name}", arguments or {}, **options)

    assert f"{server}__echo" in [tool.name for tool in (await client.list_tools()).tools]
    assert f"{server}__args-prompt" in [prompt.name for prompt in (await client.list_prompts()).prompts]
    # All three servers have the same resources, so each is listed under a qualified URI of the gateway.
    listed = [resource.uri for resource in (await client.list_resources()).resources]
    uri = next(uri for uri in listed if str(uri).startswith(f"toolgate://res/{server}/"))
    assert (await client.list_resource_templates()).resource_templates

    assert (await call("echo", {"message": "hé 😀"})).content[0].text == "Echo: hé 😀"
    assert any(part.type == "image" for part in (await call("get-tiny-image")).content)
    weather = await call("get-structured-content", {"location": "Chicago"})
    assert isinstance(weather.structured_content["temperature"], (int, float))
    assert (await call("get-sum", {"a": "no number"})).is_error
    try:
        await call("no-such-tool")
        raise AssertionError("a tool that does not exist was called")
    except MCPError as error:
        assert error.error.code == -32602, error

    steps = []

    async def progress(done, _total, _message):
        steps.append(done)

    await call("trigger-long-running-operation", {"duration": 0.2, "steps": 4}, progress_callback=progress)
    assert steps == [1, 2, 3, 4], steps

    prompt = await client.get_prompt(f"{server}__args-prompt", {"city": "Oslo"})
    assert "Oslo" in prompt.messages[0].content.text
    assert (await client.read_resource(uri)).contents[0].text
    await client.subscribe_resource(uri)
    await client.unsubscribe_resource(uri)
    reference = types.PromptReference(type="ref/prompt", name=f"{server}__completable-prompt")
    completed = await client.complete(reference, {"name": "department", "value": "E"})
    assert completed.completion.values == ["Engineering"]


async def main():
    for transport, target in [
        ("streamable HTTP", f"{GATEWAY}/mcp"),
        ("HTTP+SSE", sse_client(f"{GATEWAY}/sse")),
        ("stdio", stdio_client(bridge(GATEWAY))),
    ]:
        async with Client(
            target, mode="legacy", elicitation_callback=elicit, sampling_callback=sample
        ) as client:
            for server in ["stdio", "http", "sse"]:
                await tour(client, server)
            asked = await client.call_tool("fixture__test_elicitation", {"message": "Who?"})
            assert "accept" in asked.content[0].text, asked
            sampled = await client.call_tool("fixture__test_sampling", {"prompt": "What?"})
            assert "forty-two" in sampled.content[0].text, sampled
        print(f"  Python SDK over {transport}: all well")


# A timeout is also a failure.
asyncio.run(asyncio.wait_for(main(), timeout=60))
