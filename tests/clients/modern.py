"""The Python SDK as a client of the gateway without a handshake, with servers of both eras behind it.

Usage: modern.py GATEWAY. Prints what it did; it stops at the first failure.
"""

import asyncio
import os
import sys
import time
import warnings

from bridge import bridge
from mcp import Client, MCPDeprecationWarning, MCPError, types
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

GATEWAY = sys.argv[1]
REVISION = "2026-07-28"
# How long a list may be the old one after a change was announced. Behind a balancer, it may come from a gateway that learns of
# the change only now.
LEARNING = 10 if os.environ.get("BALANCED") else 0
# Sampling is deprecated, but servers still use it.
warnings.simplefilter("ignore", MCPDeprecationWarning)


async def elicit(_context, params):
    content = {"color": "green"} if "color" in params.message else {"name": "Ada", "username": "Ada"}
    return types.ElicitResult(action="accept", content=content)


async def sample(_context, _params):
    text = types.TextContent(type="text", text="forty-two")
    return types.CreateMessageResult(role="assistant", model="none", content=text)


async def resource_of(client, server, name=None):
    """Returns the qualified URI of a resource: both fixtures have the same resources."""
    for resource in (await client.list_resources()).resources:
        if str(resource.uri).startswith(f"toolgate://res/{server}/") and name in (None, resource.name):
            return str(resource.uri)
    raise AssertionError(f"no resource {name} of {server} is listed")


async def tools_of(client):
    return [tool.name for tool in (await client.list_tools()).tools]


async def refused(call, code):
    try:
        await call
    except MCPError as error:
        assert error.error.code == code, error
    else:
        raise AssertionError("what does not exist was found")


async def tour(client, server):
    """Uses one of the project's fixtures: `modern` supports this revision, `fixture` only older ones."""

    def call(name, arguments=None, **options):
        return client.call_tool(f"{server}__{name}", arguments or {}, **options)

    assert f"{server}__test_simple_text" in await tools_of(client)
    assert f"{server}__test_simple_prompt" in [prompt.name for prompt in (await client.list_prompts()).prompts]
    assert (await client.list_resource_templates()).resource_templates
    assert "simple text" in (await call("test_simple_text")).content[0].text
    assert (await call("test_error_handling")).is_error
    # An argument that the client repeats in a header, in base64 if necessary.
    assert "norrlånd" in (await call("test_custom_header", {"region": "norrlånd"})).content[0].text
    await refused(call("no-such-tool"), -32602)

    steps = []

    async def progress(done, _total, _message):
        steps.append(done)

    await call("test_tool_with_progress", progress_callback=progress)
    assert steps == [0, 50, 100], steps

    prompt = await client.get_prompt(f"{server}__test_prompt_with_arguments", {"arg1": "one", "arg2": "twö"})
    assert "arg2='twö'" in prompt.messages[0].content.text
    uri = await resource_of(client, server, "static-text")
    assert "static text" in (await client.read_resource(uri)).contents[0].text
    reference = types.PromptReference(type="ref/prompt", name=f"{server}__test_prompt_with_arguments")
    completed = await client.complete(reference, {"name": "arg1", "value": "par"})
    assert completed.completion.values == ["paris", "park", "party"]
    await refused(client.read_resource("test://nothing"), -32602)


async def listening(client, server):
    """Checks that an announced change arrives as a notification, and that the next list shows it."""
    uri = await resource_of(client, server, "watched-resource")
    wanted = [uri, "test://nothing"]
    async with client.listen(tools_list_changed=True, resource_subscriptions=wanted) as subscription:
        assert subscription.honored.tools_list_changed, subscription.honored
        assert subscription.honored.resource_subscriptions == [uri], subscription.honored
        before = f"{server}__test_changed_tool" in await tools_of(client)
        await client.call_tool(f"{server}__test_trigger_tool_change", {})
        missing = {ToolsListChanged, ResourceUpdated}
        async for event in subscription:
            missing.discard(type(event))
            assert not isinstance(event, ResourceUpdated) or event.uri == uri, event
            if not missing:
                break
        deadline = time.monotonic() + LEARNING
        while (f"{server}__test_changed_tool" in await tools_of(client)) == before:
            assert time.monotonic() < deadline


async def questions(client):
    """Answers the questions of a modern server, in as many rounds as needed."""

    async def call(name, arguments=None):
        return (await client.call_tool(f"modern__{name}", arguments or {})).content[0].text

    assert "accept" in await call("test_elicitation", {"message": "Who?"})
    assert "forty-two" in await call("test_sampling", {"prompt": "What?"})
    assert "state-ok" in await call("test_input_required_result_request_state")
    answers = await call("test_input_required_result_multi_round")
    assert "Ada" in answers and "green" in answers, answers
    prompt = await client.get_prompt("modern__test_input_required_result_prompt")
    assert "Use this context" in prompt.messages[0].content.text


async def visit(mode, transport):
    def at(path, *arguments):
        return f"{GATEWAY}{path}" if transport == "HTTP" else stdio_client(bridge(GATEWAY, *arguments))

    callbacks = {"elicitation_callback": elicit, "sampling_callback": sample}
    async with Client(at("/mcp"), mode=mode, **callbacks) as client:
        assert client.protocol_version == REVISION, client.protocol_version
        for server in ["modern", "fixture"]:
            await tour(client, server)
            await listening(client, server)
        # A third-party server that does not know this revision.
        for server in ["stdio", "http", "sse"]:
            said = await client.call_tool(f"{server}__echo", {"message": "hé 😀"})
            assert said.content[0].text == "Echo: hé 😀"
            assert (await client.read_resource(await resource_of(client, server))).contents[0].text
        await questions(client)
    for server in ["modern", "fixture"]:
        async with Client(at(f"/v0/servers/{server}/mcp", "--server", server), mode=mode) as native:
            assert "test_simple_text" in await tools_of(native)
            assert "Data for ID: 7" in (await native.read_resource("test://template/7/data")).contents[0].text
    print(f"  Python SDK in mode {mode} over {transport}: all well")


async def main():
    for mode in ["auto", REVISION]:
        for transport in ["HTTP", "stdio"]:
            await visit(mode, transport)


# A timeout is also a failure.
asyncio.run(asyncio.wait_for(main(), timeout=60))
