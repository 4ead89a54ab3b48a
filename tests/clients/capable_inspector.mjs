// The inspector's CLI at a server that lists its tools by the client's capabilities, which the inspector declares: it sees
// the same tools with and without the gateway between. Usage: capable_inspector.mjs

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const inspector = fileURLToPath(
  new URL('node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url),
)
// It stores settings in the home folder, so it gets another one.
const home = await mkdtemp(join(tmpdir(), 'inspector-'))

async function ask(url, ...words) {
  const line = [inspector, '--cli', url, '--transport', 'http', '--method', ...words]
  const options = { env: { ...process.env, HOME: home }, maxBuffer: 1 << 24, timeout: 60_000 }
  return JSON.parse((await promisify(execFile)(process.execPath, line, options)).stdout)
}

const places = Object.entries(JSON.parse(process.env.ADDRESSES)).filter(([name]) => name.startsWith('everything'))
const [[, direct], ...others] = places
try {
  const { tools } = await ask(direct, 'tools/list')
  const visit = async ([name, url]) => {
    const behind = (await ask(url, 'tools/list')).tools
    const names = (list) => list.map((tool) => tool.name).join(', ')
    assert.equal(names(behind), names(tools), name)
    assert.deepEqual(behind, tools, name)
    const echo = await ask(url, 'tools/call', '--tool-name', 'echo', '--tool-arg', 'message=hello')
    assert.equal(echo.content[0].text, 'Echo: hello')
  }
  await Promise.all(others.map(visit))
  console.log(`  inspector's CLI: the same ${tools.length} tools at ${places.length} addresses`)
} finally {
  await rm(home, { recursive: true })
}
