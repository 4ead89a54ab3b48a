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
    if (name !== undefined) headers['mcp-name'] = name
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: META } })
    const response = await fetch(this.#url, { method: 'POST', headers, body })
    for await (const message of messagesOf(response)) {
      if (message.id !== id) continue
      if (message.error) throw new Error(`${method} ${JSON.stringify(params)}: ${JSON.stringify(message.error)}`)
      return message.result
    }
    throw new Error(`${method} was answered with ${response.status} and no result`)
  }
}

/** Accepts a form with its defaults. */
function answersTo(inputRequests) {
  const answer = ({ params }) => ({ action: 'accept', content: sampleOf(params.requestedSchema) })
  return Object.fromEntries(Object.entries(inputRequests).map(([key, request]) => [key, answer(request)]))
}
