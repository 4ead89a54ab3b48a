// The TypeScript SDK of revision 2026-07-28 as a client of the gateway, pinned to that revision, with servers of both
// eras behind it. Usage: modern.mjs GATEWAY. It stops at the first failure.

import assert from 'node:assert/strict'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'

const gateway = process.argv[2]
const REVISION = '2026-07-28'
// How long a list may be the old one after a change was announced. Behind a balancer, it may come from a gateway that learns
// of the change only now.
const LEARNING_MS = process.env.BALANCED ? 10_000 : 0
// A timeout is also a failure.
setTimeout(() => assert.fail('not through after a minute'), 60_000).unref()

async function connect(path, capabilities = {}) {
  const options = { capabilities, versionNegotiation: { mode: { pin: REVISION } } }
  const client = new Client({ name: 'smoke', version: '1.0.0' }, options)
  await client.connect(new StreamableHTTPClientTransport(new URL(`${gateway}${path}`)))
  assert.equal(client.getNegotiatedProtocolVersion(), REVISION)
  return client
}

const names = (items) => items.map((item) => item.name)

/** The qualified URI of a resource: both fixtures have the same resources. */
async function resourceOf(client, server, name) {
  const { resources } = await client.listResources()
  const isMeant = (found) => found.uri.startsWith(`toolgate://res/${server}/`) && (!name || found.name === name)
  const found = resources.find(isMeant)
  assert.ok(found, `no resource ${name ?? ''} of ${server} is listed`)
  return found.uri
}

/** Uses one of the project's fixtures: `modern` supports this revision, `fixture` only older ones. */
async function tour(client, server) {
  const tool = (name, input = {}, options) => client.callTool({ name: `${server}__${name}`, arguments: input }, options)
  const { tools } = await client.listTools()
  assert.ok(names(tools).includes(`${server}__test_simple_text`))
  assert.ok(names((await client.listPrompts()).prompts).includes(`${server}__test_simple_prompt`))
  assert.ok((await client.listResourceTemplates()).resourceTemplates.length > 0)
  assert.match((await tool('test_simple_text')).content[0].text, /simple text/)
  assert.equal((await tool('test_error_handling')).isError, true)
  // An argument that the client repeats in a header, in base64 if necessary. With the definition at hand the SDK does not try
  // twice: every gateway behind a balancer must be able to pass the call on.
  const toolDefinition = tools.find(({ name }) => name === `${server}__test_custom_header`)
  const options = process.env.BALANCED && { toolDefinition }
  const answer = await tool('test_custom_header', { region: 'norrl\u00e5nd' }, options)
  assert.deepEqual(JSON.parse(answer.content[0].text), { region: 'norrl\u00e5nd' })
  await assert.rejects(tool('no-such-tool'), { code: -32602 })

  const progress = []
  await tool('test_tool_with_progress', {}, { onprogress: (step) => progress.push(step.progress) })
  // The SDK may lose the last one if it arrives in the same chunk as the response.
  assert.deepEqual(progress, [0, 50, 100].slice(0, Math.max(progress.length, 2)))

  const prompt = await client.getPrompt({
    name: `${server}__test_prompt_with_arguments`,
    arguments: { arg1: 'one', arg2: 'tw\u00f6' },
  })
  assert.match(prompt.messages[0].content.text, /arg1='one', arg2='tw\u00f6'/)
  const uri = await resourceOf(client, server, 'static-text')
  assert.match((await client.readResource({ uri })).contents[0].text, /static text/)
  const completed = await client.complete({
    ref: { type: 'ref/prompt', name: `${server}__test_prompt_with_arguments` },
    argument: { name: 'arg1', value: 'par' },
  })
  assert.deepEqual(completed.completion.values, ['paris', 'park', 'party'])
  await assert.rejects(client.readResource({ uri: 'test://nothing' }), { code: -32602 })
}

/** A change that a server announces arrives as a notification, and the next list and read show it. */
async function listening(client, server) {
  const uri = await resourceOf(client, server, 'watched-resource')
  const heard = new Promise((resolve) => {
    client.setNotificationHandler('notifications/tools/list_changed', () => resolve())
  })
  const updated = new Promise((resolve) => {
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => resolve(params.uri))
  })
  const subscription = await client.listen({
    toolsListChanged: true,
    resourceSubscriptions: [uri, 'test://nothing'],
  })
  assert.deepEqual(subscription.honoredFilter, { toolsListChanged: true, resourceSubscriptions: [uri] })
  const before = names((await client.listTools()).tools).includes(`${server}__test_changed_tool`)
  await client.callTool({ name: `${server}__test_trigger_tool_change`, arguments: {} })
  await heard
  assert.equal(await updated, uri)
  const deadline = Date.now() + LEARNING_MS
  while (names((await client.listTools()).tools).includes(`${server}__test_changed_tool`) === before) {
    assert.ok(Date.now() < deadline)
  }
  await subscription.close()
  assert.equal(await subscription.closed, 'local')
}

/** The client answers the questions of a modern server, in as many rounds as needed. */
async function questions() {
  const client = await connect('/mcp', { elicitation: {}, sampling: {} })
  client.setRequestHandler('elicitation/create', ({ params }) => ({
    action: 'accept',
    content: /color/.test(params.message) ? { color: 'green' } : { name: 'Ada', username: 'Ada' },
  }))
  client.setRequestHandler('sampling/createMessage', () => ({
    role: 'assistant',
    model: 'none',
    content: { type: 'text', text: 'forty-two' },
  }))
  const call = async (name, input = {}) =>
    (await client.callTool({ name: `modern__${name}`, arguments: input })).content[0].text
  assert.match(await call('test_elicitation', { message: 'Who?' }), /accept/)
  assert.match(await call('test_sampling', { prompt: 'What?' }), /forty-two/)
  assert.match(await call('test_input_required_result_request_state'), /state-ok/)
  const answers = await call('test_input_required_result_multi_round')
  assert.match(answers, /Ada/)
  assert.match(answers, /green/)
  const prompt = await client.getPrompt({ name: 'modern__test_input_required_result_prompt' })
  assert.match(prompt.messages[0].content.text, /Use this context/)
  await client.close()
}

const client = await connect('/mcp')
for (const server of ['modern', 'fixture']) {
  await tour(client, server)
  await listening(client, server)
}
// A third-party server that does not know this revision.
for (const server of ['stdio', 'http', 'sse']) {
  const tool = (name, input, options) => client.callTool({ name: `${server}__${name}`, arguments: input }, options)
  assert.equal((await tool('echo', { message: 'h\u00e9 \u{1f600}' })).content[0].text, 'Echo: h\u00e9 \u{1f600}')
  const weather = await tool('get-structured-content', { location: 'Chicago' })
  assert.equal(typeof weather.structuredContent.temperature, 'number')
  assert.ok((await client.readResource({ uri: await resourceOf(client, server) })).contents[0].text.length > 0)
}
await client.close()
await questions()
for (const server of ['modern', 'fixture']) {
  const native = await connect(`/v0/servers/${server}/mcp`)
  assert.ok(names((await native.listTools()).tools).includes('test_simple_text'))
  assert.match((await native.readResource({ uri: 'test://template/7/data' })).contents[0].text, /Data for ID: 7/)
  await native.close()
}
console.log(`  TypeScript SDK, pinned to ${REVISION}: all well`)
