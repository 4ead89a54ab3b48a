"""The Python SDK signs in with its own OAuth code, uses tools, renews its token, and uses tools again.

Usage: python.py ENDPOINT REDIRECT_URI NAME [DOCUMENT]. Prints where the person must go, and reads the parameters of the
callback from stdin.
"""

import asyncio
import sys
from urllib.parse import parse_qs

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

ENDPOINT, REDIRECT_URI, NAME, *DOCUMENT = sys.argv[1:]


class Storage:
    tokens = None
    client_info = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client_info

    async def set_client_info(self, client_info):
        self.client_info = client_info


async def go(url):
    print(f"go to {url}", flush=True)


async def come_back():
    line = await asyncio.to_thread(sys.stdin.readline)
    answer = {name: values[0] for name, values in parse_qs(line.strip()).items()}
    return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])


async def use_tools(client):
    assert "fixture__test_simple_text" in [tool.name for tool in (await client.list_tools()).tools]
    result = await client.call_tool("fixture__test_simple_text", {})
    assert "simple text" in result.content[0].text, result


async def main():
    storage = Storage()
    metadata = OAuthClientMetadata(
        client_name=NAME,
        redirect_uris=[REDIRECT_URI],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",
    )
    provider = OAuthClientProvider(
        server_url=ENDPOINT,
        client_metadata=metadata,
        storage=storage,
        redirect_handler=go,
        callback_handler=come_back,
        client_metadata_url=DOCUMENT[0] if DOCUMENT else None,
    )
    async with httpx2.AsyncClient(auth=provider) as http:
        async with Client(streamable_http_client(ENDPOINT, http_client=http)) as client:
            await use_tools(client)
            before = storage.tokens
            # It renews a token by the clock.
            provider.context.token_expiry_time = 1
            await use_tools(client)
            assert storage.tokens.access_token != before.access_token
            assert storage.tokens.refresh_token != before.refresh_token
    print("signed in and used tools as", storage.client_info.client_id, flush=True)


# A timeout is also a failure.
asyncio.run(asyncio.wait_for(main(), timeout=60))
