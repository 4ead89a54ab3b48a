// The inspector's CLI as a client of the gateway: one process for each method, a few at a time.
// Usage: inspector.mjs GATEWAY. It stops at the first failure.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const gateway = process.argv[2]
const folder = fileURLToPath(new URL('node_modules/@modelcontextprotocol/inspector/clients/', import.meta.url))
// It stores settings in the home folder, so it gets another one.
const home = await mkdtemp(join(tmpdir(), 'inspector-'))

async function ask(path, transport, ...words) {
  const line = [join(folder, 'launcher/build/index.js'), '--cli', `${gateway}${path}`, '--transport', transport]
  const options = { env: { ...process.env, HOME: home }, maxBuffer: 1 << 24, timeout: 60_000 }
  const { stdout } = await promisify(execFile)(process.execPath, [...line, '--method', ...words], options)
  return JSON.parse(stdout)
}

const native = '/v0/servers/http/mcp'
const CHECKS = [
  async () => {
    const { tools } = await ask('/mcp', 'http', 'tools/list')
    assert.ok(tools.some(({ name }) => name === 'stdio__echo'))
  },
  async () => {
    const { tools } = await ask('/sse', 'sse', 'tools/list')
    assert.ok(tools.some(({ name }) => name === 'sse__echo'))
  },
  async () => {
    const call = ['tools/call', '--tool-name', 'stdio__echo', '--tool-arg', 'message=hello']
    assert.equal((await ask('/mcp', 'http', ...call)).content[0].text, 'Echo: hello')
  },
  async () => {
    const call = ['tools/call', '--tool-name', 'get-structured-content', '--tool-arg', 'location=Chicago']
    assert.equal(typeof (await ask(native, 'http', ...call)).structuredContent.humidity, 'number')
  },
  async () => {
    const get = ['prompts/get', '--prompt-name', 'sse__args-prompt', '--prompt-args', 'city=Oslo']
    assert.match((await ask('/mcp', 'http', ...get)).messages[0].content.text, /Oslo/)
  },
  async () => {
    const { prompts } = await ask('/mcp', 'http', 'prompts/list')
    assert.ok(prompts.some(({ name }) => name === 'http__simple-prompt'))
  },
  async () => {
    const { contents } = await ask(native, 'http', 'resources/read', '--uri', 'demo://resource/dynamic/text/7')
    assert.match(contents[0].text, /7/)
  },
  async () => assert.ok((await ask(native, 'http', 'resources/list')).resources.length > 0),
  async () => assert.ok((await ask(native, 'http', 'resources/templates/list')).resourceTemplates.length > 0),
]

try {
  for (let first = 0; first < CHECKS.length; first += 3) {
    await Promise.all(CHECKS.slice(first, first + 3).map((check) => check()))
  }
  console.log("  inspector's CLI: all well")
} finally {
  await rm(home, { recursive: true })
}
