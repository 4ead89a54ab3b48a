// An agent for MCP 2026-07-28: every request is independent, and questions of a server are answered by sending the
// request again. It is written from the specification and without an SDK, like `agent.mjs`.

import { messagesOf } from './agent.mjs'
import { sampleOf } from './sample.mjs'

export const VERSION = '2026-07-28'
const MOST_ROUNDS = 10

const META = {
  'io.modelcontextprotocol/protocolVersion': VERSION,
  'io.modelcontextprotocol/clientInfo': { name: 'conformance-driver', version: '1.0.0' },
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
}

export class ModernAgent {
  #url
  #nextId = 1
  /** The schemas of the listed tools, by name. */
  #schemas = new Map()

  constructor(url) {
    this.#url = url
  }

  /** The result of a request, after as many rounds as its server needs; an error response is thrown. */
  async ask(method, params = {}) {
    let round = {}
    for (let rounds = 0; rounds < MOST_ROUNDS; rounds++) {
      const result = await this.#ask(method, { ...params, ...round })
      if (result.resultType !== 'input_required') return result
      // A state is sent back unchanged, and only if there was one.
      const { inputRequests, requestState } = result
      round = requestState === undefined ? {} : { requestState }
      if (inputRequests) round.inputResponses = answersTo(inputRequests)
    }
    throw new Error(`${method} ${JSON.stringify(params)} asks for more than ${MOST_ROUNDS} rounds`)
  }

  async leave() {}

  async #ask(method, params) {
    const id = this.#nextId++
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': VERSION,
      'mcp-method': method,
    }
    const name = method === 'resources/read' ? params.uri : params.name
    if (name !== undefined) headers['mcp-name'] = encoded(name)
    if (method === 'tools/call') Object.assign(headers, repeated(this.#schemas.get(name), params.arguments))
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: META } })
    const response = await fetch(this.#url, { method: 'POST', headers, body })
    for await (const message of messagesOf(response)) {
      if (message.id !== id) continue
      if (message.error) throw new Error(`${method} ${JSON.stringify(params)}: ${JSON.stringify(message.error)}`)
      message.result.tools?.forEach((tool) => this.#schemas.set(tool.name, tool.inputSchema))
      return message.result
    }
    throw new Error(`${method} was answered with ${response.status} and no result`)
  }
}

/** The arguments that a schema wants in headers, too. */
function repeated(schema, values) {
  const headers = {}
  for (const [key, property] of Object.entries(schema?.properties ?? {})) {
    const value = values?.[key]
    if (value === undefined || value === null) continue
    if (property['x-mcp-header']) headers[`mcp-param-${property['x-mcp-header']}`] = encoded(String(value))
    Object.assign(headers, repeated(property, value))
  }
  return headers
}

/** A value as a header carries it: as base64 if it has other characters than visible ASCII. */
function encoded(value) {
  const isPlain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?base64?')
  return isPlain ? value : `=?base64?${Buffer.from(value).toString('base64')}?=`
}

/** Accepts a form with its defaults. */
function answersTo(inputRequests) {
  const answer = ({ params }) => ({ action: 'accept', content: sampleOf(params.requestedSchema) })
  return Object.fromEntries(Object.entries(inputRequests).map(([key, request]) => [key, answer(request)]))
}
