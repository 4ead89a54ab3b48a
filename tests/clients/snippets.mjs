// Runs the snippets that the dashboard shows, as its own source has them, with the current SDKs.
// Usage: snippets.mjs GATEWAY, with TOOLGATE and PYTHON set. It stops at the first failure.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { snippets } from '../../web/src/logic/snippets.ts'

const url = `${process.argv[2]}/mcp`
const folder = mkdtempSync(join(tmpdir(), 'toolgate-snippets-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
// A timeout is also a failure.
setTimeout(() => assert.fail('not through after two minutes'), 120_000).unref()

async function namesThrough(transport) {
  const client = new Client({ name: 'snippets', version: '1.0.0' })
  await client.connect(transport)
  const { tools } = await client.listTools()
  await client.close()
  return tools.map((tool) => tool.name)
}

const lines = (command, args) =>
  execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })
    .trim()
    .split(/\r?\n/)
// The lists themselves differ: servers show some tools only to clients with certain capabilities, and clients drop some.
const EXPECTED = 'stdio__echo'

/** How each snippet is used; returns the names of the tools that it reaches. */
const uses = {
  'Claude Code': (text) => {
    const [, address] = /^claude mcp add --transport http toolgate (\S+)$/.exec(text)
    return namesThrough(new StreamableHTTPClientTransport(new URL(address)))
  },
  'Claude Desktop': (text) => {
    const entry = JSON.parse(text).mcpServers.toolgate
    const env = { ...process.env, HOME: folder }
    const file = join(folder, 'claude_desktop_config.json')
    const connect = ['connect', 'claude-desktop', '--yes', '--file', file, '--registry', process.argv[2]]
    execFileSync(process.env.TOOLGATE, connect, { env, stdio: 'ignore' })
    const written = JSON.parse(readFileSync(file, 'utf8')).mcpServers.toolgate
    assert.deepEqual({ ...entry, command: process.env.TOOLGATE }, written, '`toolgate connect` writes something else')
    assert.equal(entry.command, 'toolgate')
    return namesThrough(new StdioClientTransport({ ...written, env, stderr: 'ignore' }))
  },
  Cursor: (text) => namesThrough(new StreamableHTTPClientTransport(new URL(JSON.parse(text).mcpServers.toolgate.url))),
  'VS Code': (text) => {
    const { type, url: address } = JSON.parse(text).servers.toolgate
    assert.equal(type, 'http')
    return namesThrough(new StreamableHTTPClientTransport(new URL(address)))
  },
  ChatGPT: (text) => namesThrough(new StreamableHTTPClientTransport(new URL(text))),
  Python: (text) => lines(process.env.PYTHON, ['-W', 'error', '-c', text]),
  TypeScript: (text) => {
    // Beside the packages, where Node looks for them.
    const file = join(import.meta.dirname, 'typescript-snippet.mjs')
    writeFileSync(file, text)
    return lines(process.execPath, [file])
  },
}

for (const { client, text } of snippets(url)) {
  assert.ok(uses[client], `no test uses the snippet for ${client}`)
  assert.ok((await uses[client](text)).includes(EXPECTED), `the snippet for ${client} does not reach ${EXPECTED}`)
  console.log(`  the snippet for ${client} works`)
}
