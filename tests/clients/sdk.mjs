// The TypeScript SDK as a client of the gateway, over streamable HTTP and HTTP+SSE, with every server behind it.
// Usage: sdk.mjs GATEWAY. Prints what it did; it stops at the first failure.

import assert from 'node:assert/strict'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'

const gateway = process.argv[2]
// A timeout is also a failure.
setTimeout(() => assert.fail('not through after a minute'), 60_000).unref()
const SERVERS = ['stdio', 'http', 'sse']
const TRANSPORTS = {
  'streamable HTTP': () => new StreamableHTTPClientTransport(new URL(`${gateway}/mcp`)),
  'HTTP+SSE': () => new SSEClientTransport(new URL(`${gateway}/sse`)),
}

async function connect(transport, capabilities = {}) {
  const client = new Client({ name: 'smoke', version: '1.0.0' }, { capabilities })
  await client.connect(transport)
  return client
}

/** The SDK loses the last progress if it arrives in the same chunk as the response. */
function inOrder(seen, expected) {
  assert.deepEqual(seen, expected.slice(0, Math.max(seen.length, expected.length - 1)))
}

const names = (items) => items.map((item) => item.name)

async function resourceOf(client, server) {
  const { resources } = await client.listResources()
  const found = resources.find(({ uri }) => uri.startsWith(`toolgate://res/${server}/`))
  assert.ok(found, `no resource of ${server} is listed`)
  return found.uri
}

async function tour(client, server) {
  const tool = (name, input = {}, options) =>
    client.callTool({ name: `${server}__${name}`, arguments: input }, undefined, options)

  assert.ok(names((await client.listTools()).tools).includes(`${server}__echo`))
  assert.ok(names((await client.listPrompts()).prompts).includes(`${server}__args-prompt`))
  // All three servers have the same resources, so each is listed under a qualified URI of the gateway.
  const uri = await resourceOf(client, server)
  const templates = (await client.listResourceTemplates()).resourceTemplates
  assert.ok(templates.some(({ uriTemplate }) => uriTemplate === 'demo://resource/dynamic/text/{resourceId}'))

  assert.equal((await tool('echo', { message: 'h\u00e9 \u{1f600}' })).content[0].text, 'Echo: h\u00e9 \u{1f600}')
  assert.ok((await tool('get-tiny-image')).content.some(({ type }) => type === 'image'))
  const weather = await tool('get-structured-content', { location: 'Chicago' })
  assert.equal(typeof weather.structuredContent.temperature, 'number')
  assert.equal((await tool('get-sum', { a: 'no number' })).isError, true)
  await assert.rejects(tool('no-such-tool'), { code: -32602 })

  const progress = []
  const onprogress = (step) => progress.push(step.progress)
  await tool('trigger-long-running-operation', { duration: 0.2, steps: 4 }, { onprogress })
  inOrder(progress, [1, 2, 3, 4])

  const prompt = await client.getPrompt({ name: `${server}__args-prompt`, arguments: { city: 'Oslo' } })
  assert.match(prompt.messages[0].content.text, /Oslo/)
  assert.ok((await client.readResource({ uri })).contents[0].text.length > 0)
  const completed = await client.complete({
    ref: { type: 'ref/prompt', name: `${server}__completable-prompt` },
    argument: { name: 'department', value: 'E' },
  })
  assert.deepEqual(completed.completion.values, ['Engineering'])
}

/** A subscriber is notified of a changed resource. */
async function subscription(client, server) {
  const uri = await resourceOf(client, server)
  const updated = new Promise((resolve) => {
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri))
  })
  await client.subscribeResource({ uri })
  const toggle = () => client.callTool({ name: `${server}__toggle-subscriber-updates`, arguments: {} })
  await toggle()
  assert.equal(await updated, uri)
  await toggle()
  await client.unsubscribeResource({ uri })
}

/** A question of a server during a call reaches the client of that call, and the answer reaches the server. */
async function questions(open) {
  const client = await connect(open(), { elicitation: {}, sampling: {} })
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: 'accept', content: { username: 'Ada' } }))
  client.setRequestHandler(CreateMessageRequestSchema, () => ({
    role: 'assistant',
    model: 'none',
    content: { type: 'text', text: 'forty-two' },
  }))
  const asked = await client.callTool({ name: 'fixture__test_elicitation', arguments: { message: 'Who?' } })
  assert.match(asked.content[0].text, /accept/)
  const sampled = await client.callTool({ name: 'fixture__test_sampling', arguments: { prompt: 'What?' } })
  assert.match(sampled.content[0].text, /forty-two/)
  await client.close()
}

/** Two clients use the same request ids; a server built with the same SDK maps ids to streams. */
async function isolation(server) {
  const work = async (steps) => {
    const client = await connect(TRANSPORTS['streamable HTTP']())
    const seen = []
    const onprogress = ({ progress, total }) => seen.push(`${progress}/${total}`)
    const call = { name: `${server}__trigger-long-running-operation`, arguments: { duration: 0.3, steps } }
    const result = await client.callTool(call, undefined, { onprogress })
    assert.match(result.content[0].text, new RegExp(`Steps: ${steps}\\.`))
    inOrder(
      seen,
      Array.from({ length: steps }, (_, index) => `${index + 1}/${steps}`),
    )
    await client.close()
  }
  await Promise.all([3, 5, 7, 9].map(work))
}

for (const [transport, open] of Object.entries(TRANSPORTS)) {
  const client = await connect(open())
  await client.ping()
  await client.setLoggingLevel('debug')
  for (const server of SERVERS) {
    await tour(client, server)
  }
  for (const server of SERVERS) {
    await subscription(client, server)
  }
  await client.transport.terminateSession?.()
  await client.close()
  await questions(open)
  console.log(`  TypeScript SDK over ${transport}: all well`)
}
for (const server of SERVERS) {
  await isolation(server)
}
console.log('  TypeScript SDK, clients with the same ids: each got its own')
