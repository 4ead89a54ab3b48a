// MCP requests of the dashboard to the endpoint of one server, for what the REST API does not have: completions, and changes
// of a resource. Each request is independent (revision 2026-07-28), so no session is opened.

import { isObject } from '../logic/schema'
import { ApiError, reach, refusal } from './client'
import { events } from './sse'

const REVISION = '2026-07-28'
/** The name under which the dashboard itself is a client. */
export const OWN_CLIENT = 'toolgate-dashboard'
const META = {
  'io.modelcontextprotocol/protocolVersion': REVISION,
  'io.modelcontextprotocol/clientInfo': { name: OWN_CLIENT, version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
}

export type Reference = { type: 'ref/prompt'; name: string } | { type: 'ref/resource'; uri: string }

interface Capabilities {
  completions?: unknown
  resources?: { subscribe?: boolean }
}

const known = new Map<string, Promise<Capabilities>>()

/** What a server can do; asked once for each connection of the server, which `since` identifies. */
export function capabilities(server: string, since: string): Promise<Capabilities> {
  const key = `${server} ${since}`
  const asked = known.get(key) ?? request(server, 'server/discover', {}).then((result) => result.capabilities ?? {})
  known.set(key, asked)
  asked.catch(() => known.delete(key))
  return asked as Promise<Capabilities>
}

/** The values that a server suggests for an argument. */
export async function complete(
  server: string,
  ref: Reference,
  argument: { name: string; value: string },
  others: Record<string, string>,
  signal: AbortSignal,
): Promise<string[]> {
  const params = { ref, argument, context: { arguments: others } }
  const { completion } = await request(server, 'completion/complete', params, signal)
  const values = isObject(completion) && Array.isArray(completion.values) ? completion.values : []
  return values.filter((value) => typeof value === 'string')
}

/** Calls back for every change of a resource until the signal ends it, or the server does. */
export async function watch(server: string, uri: string, onChange: () => void, signal: AbortSignal): Promise<void> {
  const answer = await post(server, 'subscriptions/listen', { notifications: { resourceSubscriptions: [uri] } }, signal)
  if (!answer.ok || !answer.body) throw refusal(await answer.text(), answer.status)
  for await (const { data } of events(answer.body)) {
    const message: unknown = data === '' ? undefined : JSON.parse(data)
    if (isObject(message) && message.method === 'notifications/resources/updated') onChange()
  }
}

async function request(
  server: string,
  method: string,
  params: object,
  signal?: AbortSignal,
): Promise<Record<string, unknown>> {
  const answer = await post(server, method, params, signal)
  if (!answer.ok || !answer.body) throw refusal(await answer.text(), answer.status)
  if (answer.headers.get('content-type')?.startsWith('text/event-stream')) {
    for await (const { data } of events(answer.body)) {
      const message: unknown = data === '' ? undefined : JSON.parse(data)
      if (isObject(message) && 'id' in message) return result(message)
    }
    throw new ApiError('the gateway ended the answer before the result came', 0)
  }
  return result(await answer.json())
}

function post(server: string, method: string, params: object, signal?: AbortSignal): Promise<Response> {
  const init: RequestInit = {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-protocol-version': REVISION,
      'mcp-method': method,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: META } }),
  }
  if (signal) init.signal = signal
  return reach(`/v0/servers/${encodeURIComponent(server)}/mcp`, init)
}

function result(message: unknown): Record<string, unknown> {
  if (isObject(message) && isObject(message.result)) return message.result
  const error = isObject(message) && isObject(message.error) ? message.error.message : undefined
  throw new ApiError(typeof error === 'string' ? error : 'unexpected answer', 200)
}
