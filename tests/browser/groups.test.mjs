// Groups: created with the mouse, used by a real MCP client, changed and deleted. Also prompts and resources.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { assertClean, open } from './browser.mjs'
import { startGateway, stdio } from './gateway.mjs'

async function toolsAt(url) {
  const client = new Client({ name: 'browser-test', version: '1.0.0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  const { tools } = await client.listTools()
  await client.close()
  return tools.map((tool) => tool.name).sort()
}

test('a group is made, used through its endpoint by a real client, changed and deleted', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('a'))
  await gateway.register(stdio('b', { tools: [], tool_count: 3 }))
  const visit = await open(t, gateway, { hash: '#/groups' })
  const { page } = visit
  await page.getByRole('link', { name: 'New group' }).click()
  await page.getByRole('button', { name: 'Create group' }).click()
  await page.getByRole('alert').getByText('Select at least one tool or server.').waitFor()
  await page.getByLabel('Name', { exact: true }).fill('few')
  await page.getByRole('checkbox', { name: /^b All tools/ }).check()
  await page.getByText('Agents will see 3 tools').waitFor()
  await page.getByRole('checkbox', { name: /^filler_0001/ }).uncheck()
  await page.getByText('Agents will see 2 tools').waitFor()
  await page.getByRole('searchbox', { name: 'Search tools' }).fill('add numb')
  await page.getByRole('checkbox', { name: /^add / }).check()
  await page.getByText('Agents will see 3 tools').waitFor()
  await page.getByRole('button', { name: 'Create group' }).click()
  await page.getByRole('heading', { name: 'few' }).waitFor()
  await page.getByRole('button', { name: 'Copy Streamable HTTP' }).click()
  const url = await page.evaluate(() => navigator.clipboard.readText())
  assert.equal(url, `${gateway.url}/v0/groups/few/mcp`)
  await page.getByText(/^This group costs an agent about \d+ tokens\.$/).waitFor()
  const expected = ['a__add', 'b__filler_0000', 'b__filler_0002']
  assert.deepEqual(await toolsAt(url), expected)

  // A tool that is disabled elsewhere disappears from the group at once.
  await gateway.ask('POST', '/api/v0/tools/disable?entity=a__add')
  await page.getByText('Visible to agents: 2 tools').waitFor()
  await gateway.ask('POST', '/api/v0/tools/enable?entity=a__add')
  await page.getByText('Visible to agents: 3 tools').waitFor()

  await page.getByRole('link', { name: 'Edit' }).click()
  await page.getByRole('button', { name: 'Remove a__add' }).click()
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('Visible to agents: 2 tools').waitFor()
  assert.deepEqual(await toolsAt(url), ['b__filler_0000', 'b__filler_0002'])

  await page.getByRole('button', { name: 'Delete …' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete few' }).click()
  await page.getByRole('heading', { name: 'No tool groups yet' }).waitFor()
  assert.equal((await fetch(url, { method: 'POST', body: '{}' })).status, 404)
  assertClean(visit)
})

test('a prompt is rendered with its arguments', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/prompts' })
  const { page } = visit
  await page.getByRole('link', { name: /s__greet/ }).click()
  await page.getByRole('button', { name: 'Render' }).click()
  await page.getByText('who is required').waitFor()
  await page.getByLabel(/^who/).fill('Ada')
  // The server completes what was typed.
  await page.getByRole('group', { name: 'Suggestions for who' }).getByRole('button', { name: 'Ada-completed' }).click()
  assert.equal(await page.getByLabel(/^who/).inputValue(), 'Ada-completed')
  await page.getByRole('button', { name: 'Render' }).click()
  await page.getByRole('region', { name: 'Messages' }).getByText('Ada-completed').waitFor()
  assertClean(visit)
})

test('resources are read, and templates with their variables', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.register(stdio('twin'))
  const visit = await open(t, gateway, { hash: '#/resources?server=s' })
  const { page } = visit
  await page.getByRole('link', { name: /^connected text/ }).click()
  await page.getByRole('button', { name: 'Read', exact: true }).click()
  await page.getByRole('region', { name: 'Contents' }).waitFor()
  await page.goto(`${gateway.url}/#/resources/s/${encodeURIComponent('fake://pair/{left}/{right}')}`)
  await page.getByLabel('left', { exact: true }).fill('x')
  await page.getByRole('group', { name: 'Suggestions for left' }).getByRole('button', { name: 'x-completed' }).waitFor()
  await page.getByLabel('left', { exact: true }).fill('1')
  await page.getByLabel('right', { exact: true }).fill('2')
  await page.getByRole('button', { name: 'Read', exact: true }).click()
  await page.getByRole('region', { name: 'Contents' }).getByText('fake://pair/1/2').first().waitFor()
  assertClean(visit)
})

test('a change of a resource is shown while one is subscribed to it', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: `#/resources/s/${encodeURIComponent('fake://text')}` })
  const { page } = visit
  await page.getByRole('button', { name: 'Subscribe', exact: true }).click()
  await page.getByText('Subscribed. The contents are read again').waitFor()
  await page.getByRole('region', { name: 'Contents' }).waitFor()
  // The subscription may take a moment to reach the server.
  const changed = page.getByText(/^Changed \d+ times?, last at/)
  const deadline = Date.now() + 20_000
  while (!(await changed.isVisible())) {
    assert.ok(Date.now() < deadline, 'the change is shown')
    await gateway.ask('POST', '/api/v0/tools/invoke', { name: 's__touch', uri: 'fake://text' })
  }
  await page.getByRole('button', { name: 'Unsubscribe' }).click()
  await changed.waitFor({ state: 'hidden' })
  assertClean(visit)
})
