// The TypeScript SDKs sign in with their own OAuth code: they find the gateway's metadata, register or name their document, send
// the person to the gateway, and get and renew tokens.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import * as modern from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { startCallback } from './callback.mjs'
import { publish } from './documents.mjs'
import { startGateway } from './gateway.mjs'
import { person } from './person.mjs'
import { withProvider } from './provider.mjs'
import { useTools } from './tools.mjs'

/** How each SDK makes a client and a transport, and finishes with the parameters of the callback. */
const SDKS = {
  'TypeScript SDK 2': {
    Client: modern.Client,
    Transport: modern.StreamableHTTPClientTransport,
    finish: (transport, parameters) => transport.finishAuth(parameters),
  },
  'TypeScript SDK 1': {
    Client,
    Transport: StreamableHTTPClientTransport,
    finish: (transport, parameters) => transport.finishAuth(parameters.get('code')),
  },
  'TypeScript SDK 1 over HTTP+SSE': {
    Client,
    Transport: SSEClientTransport,
    endpoint: '/sse',
    finish: (transport, parameters) => transport.finishAuth(parameters.get('code')),
  },
}

/** What an application keeps for the SDK. */
class Keeper {
  constructor(name, redirectUrl, clientMetadataUrl) {
    Object.assign(this, { redirectUrl, clientMetadataUrl, sent: [] })
    this.clientMetadata = {
      client_name: name,
      redirect_uris: [redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      token_endpoint_auth_method: 'none',
    }
  }
  state() {
    return (this.expected = randomUUID())
  }
  clientInformation() {
    return this.information
  }
  saveClientInformation(information) {
    this.information = information
  }
  tokens() {
    return this.kept
  }
  saveTokens(tokens) {
    this.kept = tokens
  }
  redirectToAuthorization(url) {
    this.sent.push(url)
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier
  }
  codeVerifier() {
    return this.verifier
  }
  invalidateCredentials(what) {
    if (what === 'all' || what === 'tokens') this.kept = undefined
    if (what === 'all' || what === 'client') this.information = undefined
  }
  saveDiscoveryState(state) {
    this.discovered = state
  }
  discoveryState() {
    return this.discovered
  }
}

async function connect(sdk, gateway, keeper) {
  const transport = new sdk.Transport(new URL(gateway.url + (sdk.endpoint ?? '/mcp')), { authProvider: keeper })
  const client = new sdk.Client({ name: 'agent', version: '1.0.0' })
  try {
    await client.connect(transport)
    return { client, transport }
  } catch (error) {
    return { error, transport }
  }
}

/** Signs in, uses tools, and does so again with an access token that does not count any more. */
async function goTheWholeWay(test, sdk, gateway, name, { clientMetadataUrl, walk, callback }) {
  const keeper = new Keeper(name, callback.url, clientMetadataUrl)
  const first = await connect(sdk, gateway, keeper)
  assert.match(first.error?.constructor.name ?? '', /Unauthorized/)
  const [url] = keeper.sent
  assert.equal(url.searchParams.get('resource'), gateway.url + (sdk.endpoint ?? '/mcp'))

  await walk(url)
  const answer = await callback.answer()
  assert.equal(answer.get('state'), keeper.expected)
  assert.equal(answer.get('iss'), gateway.url)
  await sdk.finish(first.transport, answer)
  const second = await connect(sdk, gateway, keeper)
  assert.ifError(second.error)
  await useTools(second.client)

  const before = keeper.kept
  keeper.kept = { ...before, access_token: 'expired' }
  await useTools(second.client)
  assert.notEqual(keeper.kept.access_token, before.access_token)
  assert.notEqual(keeper.kept.refresh_token, before.refresh_token)
  assert.equal(keeper.sent.length, 1, 'the person is not asked again')
  await second.client.close()
  const [grant] = await gateway.grantsOf(name)
  assert.equal(grant.client_id, keeper.information?.client_id ?? clientMetadataUrl)
  return { keeper, grant }
}

test('TypeScript clients sign in at an identity provider', async (t) => {
  const gateway = await startGateway(t, withProvider(t))
  for (const [name, sdk] of Object.entries(SDKS)) {
    await t.test(`${name}, registered by itself`, async (t) => {
      const callback = await startCallback(t)
      const anna = await person(t, gateway)
      const walk = async (url) => {
        await anna.open(url)
        await anna.signInAtProvider('anna')
        await anna.allow(name, { endpoint: sdk.endpoint })
        await anna.heading('Connected')
      }
      const { keeper, grant } = await goTheWholeWay(t, sdk, gateway, name, { walk, callback })
      assert.equal(grant.username, 'anna')
      // An admin ends the grant: then neither token counts, and the person is asked again.
      await gateway.ask('DELETE', `/api/v0/grants/${grant.id}`)
      const { error } = await connect(sdk, gateway, keeper)
      assert.match(error?.constructor.name ?? '', /Unauthorized/)
      assert.equal(keeper.sent.length, 2)
    })
  }
  for (const name of ['TypeScript SDK 2', 'TypeScript SDK 1']) {
    await t.test(`${name}, with a metadata document`, async (t) => {
      const documented = `${name} with a document`
      const callback = await startCallback(t)
      const clientMetadataUrl = await publish(t, documented, ['http://127.0.0.1/callback'])
      const anna = await person(t, gateway)
      const walk = (url) => anna.signInAndAllow(url, documented)
      await goTheWholeWay(t, SDKS[name], gateway, documented, { walk, callback, clientMetadataUrl })
    })
  }
  await t.test('without JavaScript, and by somebody who is signed in already', async (t) => {
    const anna = await person(t, gateway, { javaScriptEnabled: false })
    const sdk = SDKS['TypeScript SDK 2']
    const first = { callback: await startCallback(t), walk: (url) => anna.signInAndAllow(url, 'Plain agent') }
    await goTheWholeWay(t, sdk, gateway, 'Plain agent', first)
    const walk = async (url) => {
      await anna.open(url)
      await anna.allow('Second agent')
    }
    await goTheWholeWay(t, sdk, gateway, 'Second agent', { callback: await startCallback(t), walk })
  })
})

test('a TypeScript client signs in without an identity provider, over https', async (t) => {
  const gateway = await startGateway(t, undefined, { isSafe: true })
  const token = await gateway.createUser('anna')
  const anna = await person(t, gateway, { javaScriptEnabled: false })
  const walk = async (url) => {
    await anna.open(url)
    await anna.signInWithToken(token)
    await anna.allow('Agent of a small team')
  }
  const way = { callback: await startCallback(t), walk }
  await goTheWholeWay(t, SDKS['TypeScript SDK 2'], gateway, 'Agent of a small team', way)
  const [cookie] = await anna.context.cookies(gateway.url)
  assert.deepEqual(
    { name: cookie.name, secure: cookie.secure, httpOnly: cookie.httpOnly, sameSite: cookie.sameSite },
    { name: '__Host-toolgate', secure: true, httpOnly: true, sameSite: 'Lax' },
  )
})
