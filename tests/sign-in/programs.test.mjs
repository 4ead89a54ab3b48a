// Clients that are programs of their own sign in: the Python SDK, `mcp-remote`, and the web page of the inspector.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { startCallback } from './callback.mjs'
import { publish } from './documents.mjs'
import { startGateway } from './gateway.mjs'
import { person } from './person.mjs'
import { folder, freePort, Output, PATIENCE, Program } from './programs.mjs'
import { withProvider } from './provider.mjs'
import { useTools } from './tools.mjs'

const inner = (path) => fileURLToPath(new URL(path, import.meta.url))
const inPackages = (path) => inner(`../node_modules/${path}`)

test('clients that are programs sign in at an identity provider', async (t) => {
  const gateway = await startGateway(t, withProvider(t))
  for (const kind of ['registered by itself', 'with a metadata document']) {
    await t.test(`Python SDK, ${kind}`, (t) => usePython(t, gateway, kind))
    await t.test(`mcp-remote, ${kind}`, (t) => useRemote(t, gateway, kind))
  }
  await t.test('inspector', (t) => useInspector(t, gateway))
})

async function usePython(t, gateway, kind) {
  const name = `Python SDK, ${kind}`
  const callback = await startCallback(t)
  const document = kind.includes('document') ? [await publish(t, name, ['http://127.0.0.1/callback'])] : []
  const line = [inner('python.py'), `${gateway.url}/mcp`, callback.url, name, ...document]
  const program = new Program(t, process.env.PYTHON, line)
  const anna = await person(t, gateway)
  await anna.signInAndAllow(await program.until(/go to (\S+)/), name)
  program.child.stdin.write(`${await callback.answer()}\n`)
  const clientId = await program.until(/used tools as (\S+)/)
  assert.equal(await program.ended, 0)
  const [grant] = await gateway.grantsOf(name)
  assert.equal(grant.client_id, clientId)
  assert.equal(document.length === 1, clientId.startsWith('https://'))
}

async function useRemote(t, gateway, kind) {
  const home = folder(t)
  const name = kind.includes('document') ? 'Documented mcp-remote' : 'MCP CLI Proxy'
  const line = [inPackages('mcp-remote/dist/proxy.js'), `${gateway.url}/mcp`]
  if (kind.includes('document')) {
    const url = await publish(t, name, ['http://localhost/oauth/callback'])
    line.push('--client-metadata-url', url)
  }
  const start = () => startRemote(t, line, home)

  const first = start()
  const anna = await person(t, gateway)
  await anna.signInAndAllow(await first.until(/visiting:\s+(\S+)/), name)
  await first.useTools()
  await first.close()

  // A later start finds a token that does not count any more, and renews it by itself.
  const path = tokensIn(home)
  const before = JSON.parse(readFileSync(path, 'utf8'))
  writeFileSync(path, JSON.stringify({ ...before, access_token: 'expired' }))
  const second = start()
  await second.useTools()
  await second.close()
  const after = JSON.parse(readFileSync(path, 'utf8'))
  assert.notEqual(after.access_token, before.access_token)
  assert.notEqual(after.refresh_token, before.refresh_token)
}

/** Starts `mcp-remote` as a server on stdio, and connects to it. That is through only after the person has agreed. */
function startRemote(t, args, home) {
  // No browser is found there, so it prints where the person must go.
  const env = { HOME: home, MCP_REMOTE_CONFIG_DIR: home, PATH: home }
  const transport = new StdioClientTransport({ command: process.execPath, args, env, stderr: 'pipe' })
  const output = new Output('mcp-remote')
  transport.stderr.setEncoding('utf8').on('data', (text) => output.read(text))
  const client = new Client({ name: 'agent', version: '1.0.0' })
  client.onclose = () => output.end()
  const connected = client.connect(transport, { timeout: PATIENCE }).catch((error) => error)
  t.after(() => client.close())
  return {
    until: (pattern) => output.until(pattern),
    async useTools() {
      const error = await connected
      assert.equal(error, undefined, `${error?.message}; ${output.name} printed: ${output.text}`)
      await useTools(client)
    },
    close: () => client.close(),
  }
}

/** The file in which `mcp-remote` keeps tokens. */
function tokensIn(home) {
  const found = readdirSync(home, { recursive: true }).filter((name) => name.endsWith('tokens.json'))
  assert.equal(found.length, 1, `files with tokens: ${found}`)
  return join(home, found[0])
}

async function useInspector(t, gateway) {
  const home = folder(t)
  const anna = await person(t, gateway)
  const first = await startInspector(t, gateway, home)
  await anna.open(first.url)
  await connectInInspector(anna.page)
  await anna.signInAtProvider('anna')
  await anna.allow('MCP Inspector')
  await anna.page.getByText('Authentication succeeded').waitFor()
  await callInInspector(anna.page)
  const [grant] = await gateway.grantsOf('MCP Inspector')
  assert.equal(grant.resource, `${gateway.url}/mcp`)
  await first.program.stop()

  // A later start finds a token that does not count any more, and renews it by itself.
  const path = join(home, 'secrets.json')
  const before = readFileSync(path, 'utf8')
  writeFileSync(path, before.replace(/tga_[\w-]+/, 'expired'))
  const second = await startInspector(t, gateway, home)
  await anna.open(second.url)
  await connectInInspector(anna.page)
  await callInInspector(anna.page)
  assert.match(readFileSync(path, 'utf8'), /tga_/)
  assert.equal((await gateway.grantsOf('MCP Inspector')).length, 1)
}

async function startInspector(t, gateway, home) {
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    MCP_STORAGE_DIR: home,
    // Not in the keychain of whoever runs the tests.
    MCP_INSPECTOR_SECRET_STORE: 'file',
    CLIENT_PORT: await freePort(),
    MCP_SANDBOX_PORT: '0',
    MCP_APP_ORIGIN_PORT: '0',
    MCP_AUTO_OPEN_ENABLED: 'false',
  }
  const launcher = inPackages('@modelcontextprotocol/inspector/clients/launcher/build/index.js')
  const line = [launcher, '--web', '--transport', 'http', '--server-url', `${gateway.url}/mcp`]
  const program = new Program(t, process.execPath, line, { env })
  return { program, url: await program.until(/(http:\/\/\S+)/) }
}

/** The switch itself is hidden; what people see is drawn beside it. */
async function connectInInspector(page) {
  await page.getByRole('switch', { name: /^Connect/ }).dispatchEvent('click')
}

async function callInInspector(page) {
  await page.locator('label').getByText('Tools', { exact: true }).click()
  await page.getByText('fixture__test_simple_text').click()
  await page.getByRole('button', { name: 'Execute Tool' }).click()
  await page.getByText('This is a simple text response').waitFor()
}
