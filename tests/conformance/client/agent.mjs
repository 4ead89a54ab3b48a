// An agent for MCP 2025-11-25 over streamable HTTP that can be asked for input. It is written from the specification and
// without an SDK, so that nothing hides what the gateway sends.

import { sampleOf } from './sample.mjs'

const VERSION = '2025-11-25'

export class Agent {
  #url
  #session
  #nextId = 1

  constructor(url) {
    this.#url = url
  }

  static async connect(url) {
    const agent = new Agent(url)
    await agent.ask('initialize', {
      protocolVersion: VERSION,
      capabilities: { elicitation: {} },
      clientInfo: { name: 'conformance-driver', version: '1.0.0' },
    })
    await agent.#send({ method: 'notifications/initialized' })
    return agent
  }

  /** The result of a request; an error response is thrown. */
  async ask(method, params = {}) {
    const id = this.#nextId++
    const response = await this.#send({ id, method, params })
    this.#session ??= response.headers.get('mcp-session-id')
    for await (const message of messagesOf(response)) {
      if (message.method && message.id !== undefined) await this.#answer(message)
      if (message.id !== id || message.method) continue
      if (message.error) throw new Error(`${method} ${JSON.stringify(params)}: ${JSON.stringify(message.error)}`)
      return message.result
    }
    throw new Error(`${method} was answered with ${response.status} and no result`)
  }

  async leave() {
    await fetch(this.#url, { method: 'DELETE', headers: this.#headers() })
  }

  /** Accepts a form with its defaults. */
  async #answer({ id, method, params }) {
    if (method === 'elicitation/create') {
      await this.#send({ id, result: { action: 'accept', content: sampleOf(params.requestedSchema) } })
    } else {
      await this.#send({ id, error: { code: -32601, message: `unknown method ${method}` } })
    }
  }

  #send(message) {
    const body = JSON.stringify({ jsonrpc: '2.0', ...message })
    return fetch(this.#url, { method: 'POST', headers: this.#headers(), body })
  }

  #headers() {
    const session = this.#session && { 'mcp-session-id': this.#session, 'mcp-protocol-version': VERSION }
    return { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...session }
  }
}

/** The messages of a response as they arrive: a single one or a stream of events. */
export async function* messagesOf(response) {
  if (!(response.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
    yield JSON.parse(await response.text())
    return
  }
  let rest = ''
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + chunk).split('\n\n')
    rest = events.pop()
    for (const event of events) {
      const data = event.split('\n').filter((line) => line.startsWith('data: '))
      if (data.length > 0) yield JSON.parse(data.map((line) => line.slice(6)).join('\n'))
    }
  }
}
