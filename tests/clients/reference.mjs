// A server for the official conformance suite, made with the TypeScript SDK 1.x, which speaks the legacy era only.
// Usage: reference.mjs http|sse|stdio. Over HTTP it listens on a free port and prints its address first.

import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  ReadResourceRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js'

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA='
const IMAGE = { type: 'image', data: PNG, mimeType: 'image/png' }
// Between two notifications of one call, so that they do not arrive together.
const PAUSE_MS = 50

const said = (text) => ({ type: 'text', text })
const embedded = (uri, mimeType, text) => ({ type: 'resource', resource: { uri, mimeType, text } })
const titled = (...words) => words.map((word, index) => ({ const: `value${index + 1}`, title: word }))
const OPTIONS = ['option1', 'option2', 'option3']

const DEFAULTS = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
}
const CHOICES = {
  untitledSingle: { type: 'string', enum: OPTIONS },
  titledSingle: { type: 'string', oneOf: titled('First', 'Second', 'Third') },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2'], enumNames: ['Option One', 'Option Two'] },
  untitledMulti: { type: 'array', items: { type: 'string', enum: OPTIONS } },
  titledMulti: { type: 'array', items: { anyOf: titled('First', 'Second', 'Third') } },
}

async function elicit(message, properties, { sendRequest }) {
  const params = { message, requestedSchema: { type: 'object', properties } }
  const { action, content } = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema)
  return [said(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`)]
}

/** The tools: the name of the argument, if there is one, and the function that makes the content of the result. */
const TOOLS = {
  test_simple_text: [null, () => [said('This is a simple text response for testing.')]],
  test_image_content: [null, () => [IMAGE]],
  test_audio_content: [null, () => [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }]],
  test_embedded_resource: [
    null,
    () => [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  ],
  test_multiple_content_types: [
    null,
    () => [
      said('Multiple content types test:'),
      IMAGE,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  ],
  test_tool_with_logging: [
    null,
    async (_, { sendNotification }) => {
      for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await sendNotification({ method: 'notifications/message', params: { level: 'info', data } })
        await pause(PAUSE_MS)
      }
      return [said('Logs were sent')]
    },
  ],
  test_tool_with_progress: [
    null,
    async (_, { sendNotification, _meta }) => {
      for (const progress of [0, 50, 100]) {
        const params = { progressToken: _meta?.progressToken ?? 0, progress, total: 100 }
        await sendNotification({ method: 'notifications/progress', params })
        await pause(PAUSE_MS)
      }
      return [said('Progress was reported')]
    },
  ],
  test_sampling: [
    'prompt',
    async (prompt, { sendRequest }) => {
      const params = { messages: [{ role: 'user', content: said(prompt) }], maxTokens: 100 }
      const request = { method: 'sampling/createMessage', params }
      return [said(`LLM response: ${(await sendRequest(request, CreateMessageResultSchema)).content.text}`)]
    },
  ],
  test_elicitation: ['message', (message, extra) => elicit(message, { response: { type: 'string' } }, extra)],
  test_elicitation_sep1034_defaults: [null, (_, extra) => elicit('Who are you?', DEFAULTS, extra)],
  test_elicitation_sep1330_enums: [null, (_, extra) => elicit('Choose', CHOICES, extra)],
  test_error_handling: [
    null,
    () => {
      throw new Error('This tool intentionally returns an error for testing')
    },
  ],
}

const argument = (name) => ({ name, description: `The ${name}`, required: true })
/** The prompts: their arguments, and the function that makes the content of their messages. */
const PROMPTS = {
  test_simple_prompt: [[], () => [said('This is a simple prompt for testing.')]],
  test_prompt_with_arguments: [
    ['arg1', 'arg2'],
    ({ arg1, arg2 }) => [said(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  ],
  test_prompt_with_embedded_resource: [
    ['resourceUri'],
    ({ resourceUri }) => [
      embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
      said('Please process the embedded resource above.'),
    ],
  ],
  test_prompt_with_image: [[], () => [IMAGE, said('Please analyze the image above.')]],
}

function read(uri) {
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1]
  if (id) {
    const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` })
    return { uri, mimeType: 'application/json', text }
  }
  if (uri === 'test://static-binary') return { uri, mimeType: 'image/png', blob: PNG }
  return { uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }
}

function makeServer() {
  const offer = { tools: {}, prompts: {}, resources: { subscribe: true }, logging: {}, completions: {} }
  const server = new Server({ name: 'typescript-reference', version: '1.0.0' }, { capabilities: offer })
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.entries(TOOLS).map(([name, [needed]]) => ({
      name,
      description: `The suite calls ${name}`,
      inputSchema: needed
        ? { type: 'object', properties: { [needed]: { type: 'string' } }, required: [needed] }
        : { type: 'object', properties: {} },
    })),
  }))
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    const [needed, make] = TOOLS[params.name] ?? []
    if (!make) throw new Error(`there is no tool ${params.name}`)
    try {
      return { content: await make(params.arguments?.[needed], extra) }
    } catch (error) {
      return { content: [said(error.message)], isError: true }
    }
  })
  server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: Object.entries(PROMPTS).map(([name, [needed]]) => ({
      name,
      description: `The suite renders ${name}`,
      arguments: needed.map(argument),
    })),
  }))
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
    messages: PROMPTS[params.name][1](params.arguments ?? {}).map((content) => ({ role: 'user', content })),
  }))
  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: ['static-text', 'static-binary', 'watched-resource'].map((name) => ({ uri: `test://${name}`, name })),
  }))
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template' }],
  }))
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => ({ contents: [read(params.uri)] }))
  server.setRequestHandler(SubscribeRequestSchema, () => ({}))
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({}))
  server.setRequestHandler(CompleteRequestSchema, () => ({
    completion: { values: ['paris'], total: 1, hasMore: false },
  }))
  return server
}

const sessions = new Map()

/** A POST without a session must be an `initialize`, for which the transport makes one. */
async function streamable(request, response) {
  let transport = sessions.get(request.headers['mcp-session-id'])
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
      onsessionclosed: (id) => sessions.delete(id),
    })
    await makeServer().connect(transport)
  }
  await transport.handleRequest(request, response, request.body)
}

async function openEvents(_request, response) {
  const transport = new SSEServerTransport('/messages', response)
  sessions.set(transport.sessionId, transport)
  response.on('close', () => sessions.delete(transport.sessionId))
  await makeServer().connect(transport)
}

const way = process.argv[2]
if (way === 'stdio') {
  await makeServer().connect(new StdioServerTransport())
} else {
  const app = createMcpExpressApp()
  app.all('/mcp', streamable)
  app.get('/sse', openEvents)
  app.post('/messages', (request, response) =>
    sessions.get(request.query.sessionId).handlePostMessage(request, response, request.body),
  )
  const path = way === 'sse' ? '/sse' : '/mcp'
  const listener = app.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}${path}`))
}
