// The commands that the pages show for a terminal: each is run as it is shown, with the gateway on a free port.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { assertClean, open } from './browser.mjs'
import { fakeCommand, startGateway, stdio, tool } from './gateway.mjs'

/** A folder for PATH in which `toolgate` is the tested program and `npx` starts the fake upstream. */
function programs(folder) {
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  symlinkSync(process.env.TOOLGATE, join(bin, 'toolgate'))
  const { command, args } = fakeCommand()
  writeFileSync(join(bin, 'npx'), `#!/bin/sh\nexec ${[command, ...args].map((word) => `'${word}'`).join(' ')}\n`)
  chmodSync(join(bin, 'npx'), 0o755)
  return `${bin}:${process.env.PATH}`
}

async function run(line, PATH) {
  const env = { PATH, HOME: dirname(PATH.split(':')[0]) }
  const { stdout } = await promisify(execFile)('sh', ['-c', line], { env })
  return stdout
}

test('the commands of an empty gateway register a server', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'toolgate-browser-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const PATH = programs(folder)
  for (const at of [0, 1]) {
    const gateway = await startGateway(t, { PATH })
    const visit = await open(t, gateway, { hash: '#/servers' })
    const lines = visit.page.getByLabel('From a terminal', { exact: true })
    await lines.first().waitFor()
    assert.equal(await lines.count(), 2)
    await run(await lines.nth(at).textContent(), PATH)
    await visit.page.getByRole('link', { name: /everything/ }).waitFor()
    assert.equal((await gateway.ask('GET', '/api/v0/servers/everything')).status, 'connected')
    assertClean(visit)
  }
})

test('the command of a gateway without groups makes a group', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('everything'))
  const visit = await open(t, gateway, { hash: '#/groups' })
  await run(await visit.page.getByLabel('From a terminal', { exact: true }).textContent(), process.env.PATH)
  await visit.page.getByRole('link', { name: /small/ }).waitFor()
  assertClean(visit)
})

test('the commands of a call repeat it', async (t) => {
  const gateway = await startGateway(t)
  const named = tool('named', 'Has an argument that is called name', { name: { type: 'string' } }, ['name'])
  await gateway.register(stdio('s', { tools: [named] }))
  const PATH = programs(gateway.folder)
  const visit = await open(t, gateway, { hash: '#/tools/s__named' })
  const { page } = visit
  await page.getByLabel(/^name/).fill('it\'s "quoted"')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  await page.getByRole('tab', { name: 'curl and CLI' }).click()
  const curl = await page.getByLabel('curl', { exact: true }).textContent()
  assert.match(curl, /\/api\/v0\/tools\/invoke/)
  const answer = JSON.parse(await run(curl, PATH))
  assert.deepEqual(JSON.parse(answer.content[0].text), { name: 'it\'s "quoted"' })
  const cli = await page.getByLabel('toolgate CLI', { exact: true }).textContent()
  assert.ok(cli.endsWith(`--registry ${gateway.url}`), cli)
  assert.match(await run(cli, PATH), /it's \\?"quoted/)
  assertClean(visit)
})
