// The TypeScript SDKs with all capabilities: `sdk` and `client`, and `sdk` through `mcp-remote`.
// Usage: capable.mjs

import { fileURLToPath } from 'node:url'
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import { cross } from './pairs.mjs'
import { CAPABILITIES, Notices, Questions, textOf, visit } from './tour.mjs'

const REVISION = '2026-07-28'
const INFO = { name: 'capable', version: '1.0.0' }
const REMOTE = fileURLToPath(new URL('node_modules/mcp-remote/dist/proxy.js', import.meta.url))

/** What both SDKs have in common. */
function agentOf(client, notices, questions) {
  const onprogress = ({ message }) => questions.progressed.push(message)
  return {
    notices,
    questions,
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (name, input = {}) => textOf(await callTool(client, { name, arguments: input }, { onprogress })),
    prompt: async (name) => (await client.getPrompt({ name })).messages[0].content.text,
    watch: async (uri) => {
      await client.subscribeResource({ uri })
      return () => client.unsubscribeResource({ uri })
    },
    close: () => client.close(),
  }
}

/** The two SDKs have the options in different places. */
const callTool = (client, call, options) =>
  client instanceof Client ? client.callTool(call, undefined, options) : client.callTool(call, options)

async function sdk(transport, { bare = false } = {}) {
  const client = new Client(INFO, { capabilities: bare ? {} : CAPABILITIES })
  const [notices, questions] = [new Notices(), new Questions()]
  for (const schema of bare ? [] : [ElicitRequestSchema, CreateMessageRequestSchema, ListRootsRequestSchema]) {
    client.setRequestHandler(schema, ({ method, params }) => questions.answer(method, params))
  }
  if (bare) client.fallbackRequestHandler = ({ method, params }) => questions.answer(method, params)
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => notices.add(`updated ${params.uri}`))
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => notices.add('tools'))
  await client.connect(transport)
  return agentOf(client, notices, questions)
}

const remote = (url) => {
  const args = [REMOTE, url, '--allow-http', '--transport', 'http-only']
  // It stores settings in the home folder unless it is told another one.
  const env = { ...process.env, MCP_REMOTE_CONFIG_DIR: fileURLToPath(new URL('mcp-remote', import.meta.url)) }
  return new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' })
}

/** The SDK of both eras. */
async function both(url, options, { bare = false } = {}) {
  const client = new ModernClient(INFO, { capabilities: bare ? {} : CAPABILITIES, ...options })
  const [notices, questions] = [new Notices(), new Questions()]
  for (const method of bare ? [] : ['elicitation/create', 'sampling/createMessage', 'roots/list']) {
    client.setRequestHandler(method, ({ params }) => questions.answer(method, params))
  }
  if (bare) client.fallbackRequestHandler = ({ method, params }) => questions.answer(method, params)
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => notices.add(`updated ${params.uri}`))
  client.setNotificationHandler('notifications/tools/list_changed', () => notices.add('tools'))
  await client.connect(new ModernTransport(new URL(url)))
  const agent = agentOf(client, notices, questions)
  if (client.getNegotiatedProtocolVersion() !== REVISION) return agent
  const watch = async (uri) => {
    const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] })
    return () => subscription.close()
  }
  return { ...agent, watch }
}

const pinned = { versionNegotiation: { mode: { pin: REVISION } } }
for (const go of [visit, cross]) {
  await go('TypeScript sdk', (url, how) => sdk(new StreamableHTTPClientTransport(new URL(url)), how))
  await go(`TypeScript client, ${REVISION}`, (url, how) => both(url, pinned, how), { modern: true })
}
await visit('TypeScript client, legacy', (url) => both(url, {}))
await visit('mcp-remote', (url) => sdk(remote(url)))
