// The TypeScript SDKs with all capabilities at servers of their era: `sdk` and `client`, and `sdk` through `mcp-remote`.
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
import { CAPABILITIES, ELICITED, Notices, ROOTS, SAMPLED, textOf, visit } from './tour.mjs'

const REVISION = '2026-07-28'
const INFO = { name: 'capable', version: '1.0.0' }
const REMOTE = fileURLToPath(new URL('node_modules/mcp-remote/dist/proxy.js', import.meta.url))

/** What both SDKs have in common. */
function agentOf(client, notices) {
  return {
    notices,
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async (name, input = {}) => textOf(await client.callTool({ name, arguments: input })),
    watch: async (uri) => {
      await client.subscribeResource({ uri })
      return () => client.unsubscribeResource({ uri })
    },
    close: () => client.close(),
  }
}

async function sdk(transport) {
  const [client, notices] = [new Client(INFO, { capabilities: CAPABILITIES }), new Notices()]
  client.setRequestHandler(ElicitRequestSchema, () => ELICITED)
  client.setRequestHandler(CreateMessageRequestSchema, () => SAMPLED)
  client.setRequestHandler(ListRootsRequestSchema, () => ROOTS)
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => notices.add(`updated ${params.uri}`))
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => notices.add('tools'))
  await client.connect(transport)
  return agentOf(client, notices)
}

const remote = (url) => {
  const args = [REMOTE, url, '--allow-http', '--transport', 'http-only']
  // It stores settings in the home folder unless it is told another one.
  const env = { ...process.env, MCP_REMOTE_CONFIG_DIR: fileURLToPath(new URL('mcp-remote', import.meta.url)) }
  return new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' })
}

/** The SDK of both eras. */
async function both(url, options) {
  const client = new ModernClient(INFO, { capabilities: CAPABILITIES, ...options })
  const notices = new Notices()
  client.setRequestHandler('elicitation/create', () => ELICITED)
  client.setRequestHandler('sampling/createMessage', () => SAMPLED)
  client.setRequestHandler('roots/list', () => ROOTS)
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => notices.add(`updated ${params.uri}`))
  client.setNotificationHandler('notifications/tools/list_changed', () => notices.add('tools'))
  await client.connect(new ModernTransport(new URL(url)))
  const agent = agentOf(client, notices)
  if (client.getNegotiatedProtocolVersion() !== REVISION) return agent
  const watch = async (uri) => {
    const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] })
    return () => subscription.close()
  }
  return { ...agent, watch }
}

await visit('TypeScript sdk', (url) => sdk(new StreamableHTTPClientTransport(new URL(url))))
await visit('TypeScript client, legacy', (url) => both(url, {}))
const pinned = { versionNegotiation: { mode: { pin: REVISION } } }
await visit(`TypeScript client, ${REVISION}`, (url) => both(url, pinned), { modern: true })
await visit('mcp-remote', (url) => sdk(remote(url)))
