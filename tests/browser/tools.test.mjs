// Tools: nested schemas, results by type, failures, progress, cancelling, enable and disable, and a thousand tools.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startGateway, stdio, tool } from './gateway.mjs'

const nested = tool(
  'order',
  'Orders something',
  {
    title: { type: 'string', minLength: 3 },
    count: { type: 'integer', default: 2 },
    speed: { enum: ['slow', 'fast'] },
    address: {
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
      required: ['city'],
    },
    lines: {
      type: 'array',
      items: { type: 'object', properties: { sku: { type: 'string' }, gift: { type: 'boolean' } }, required: ['sku'] },
    },
    payment: {
      oneOf: [
        { title: 'Card', type: 'object', properties: { number: { type: 'string' } }, required: ['number'] },
        { title: 'Invoice', type: 'object', properties: { due: { type: 'integer' } }, required: ['due'] },
      ],
    },
    labels: { type: 'object', additionalProperties: { type: 'string' } },
  },
  ['title', 'address'],
)

test('a tool with a nested schema is called through its form', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('shop', { tools: [nested] }))
  const visit = await open(t, gateway, { hash: '#/tools/shop__order' })
  const { page } = visit
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByRole('alert').getByText('title is required').waitFor()
  await page.getByLabel(/^title/).fill('chairs')
  await page.getByLabel(/^city/).fill('Oslo')
  await page.getByLabel(/^speed/).selectOption('fast')
  await page.getByRole('button', { name: 'Add lines' }).click()
  await page.getByLabel(/^sku/).fill('c-1')
  await page.getByLabel(/^gift/).selectOption('true')
  await page.getByRole('button', { name: 'Add item to lines' }).click()
  await page.getByLabel(/^sku/).nth(1).fill('c-2')
  await page.getByRole('button', { name: 'Add payment' }).click()
  await page.getByLabel('Kind').selectOption('Invoice')
  await page.getByLabel(/^due/).fill('30')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  const wanted = {
    title: 'chairs',
    address: { city: 'Oslo' },
    count: 2,
    speed: 'fast',
    lines: [{ sku: 'c-1', gift: true }, { sku: 'c-2' }],
    payment: { due: 30 },
  }
  await page.getByRole('tab', { name: 'Request' }).click()
  assert.deepEqual(JSON.parse(await page.getByLabel('Arguments', { exact: true }).textContent()), wanted)
  await page.getByRole('tab', { name: 'Response' }).click()
  const response = JSON.parse(await page.getByLabel('Raw response', { exact: true }).textContent())
  assert.deepEqual(JSON.parse(response.content[0].text), wanted)
  await page.getByRole('tab', { name: 'curl and CLI' }).click()
  assert.match(
    await page.getByLabel('curl', { exact: true }).textContent(),
    /^curl -X POST http.*\/api\/v0\/tools\/invoke -d '\{"name":"shop__order",/,
  )
  assert.match(
    await page.getByLabel('toolgate CLI', { exact: true }).textContent(),
    /^toolgate invoke shop__order --input '\{/,
  )

  // The same call as JSON, where large numbers keep their digits; then two results side by side.
  await page.getByRole('button', { name: 'JSON', exact: true }).click()
  await page.getByLabel('Arguments as JSON').fill('{"big": 98765432109876543210}')
  await page.getByRole('button', { name: 'Run again' }).click()
  await page.getByText('#2 Succeeded').waitFor()
  await page.getByRole('tab', { name: 'Request' }).click()
  assert.match(await page.getByLabel('HTTP request', { exact: true }).textContent(), /98765432109876543210/)
  await page.getByLabel('Compare with').selectOption('#1')
  await page.locator('[data-run="1"]').waitFor()
  await page.locator('[data-run="2"]').waitFor()

  // The link names the tool, so it survives a reload.
  await page.reload()
  await page.getByRole('heading', { name: 'shop__order' }).waitFor()
  assertClean(visit)
})

test('results are shown by their type', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/tools/s__image' })
  const { page } = visit
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByRole('img', { name: 'Result, image/png' }).waitFor()
  assert.ok(
    await page.getByRole('img', { name: 'Result' }).evaluate((image) => image.complete && image.naturalWidth > 0),
    'the picture is shown',
  )
  await page.goto(`${gateway.url}/#/tools/s__structured`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('Structured content', { exact: true }).waitFor()
  await page.getByText('"degrees"').first().waitFor()
  assertClean(visit)
})

test('a tool that fails says why', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway)
  const { page } = visit
  await page.getByText('All servers are connected').waitFor()
  await page.goto(`${gateway.url}/#/tools/s__fail`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Tool error').waitFor()
  await page.getByLabel('text', { exact: true }).getByText('it went wrong').waitFor()
  await page.goto(`${gateway.url}/#/tools/s__rpc_error`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByRole('alert').getByText('code -32050').waitFor()
  // The overview still shows it.
  await page.goto(`${gateway.url}/#/`)
  const failures = page.getByRole('region', { name: 'Recent failures' })
  await failures.getByText('the tool refused (code -32050)').waitFor()
  await failures.getByText('it went wrong').waitFor()
  const state = page.getByRole('region', { name: 'State' })
  await state.getByText('2 calls failed in the last hour').waitFor()
  assert.equal(await page.getByText('All servers are connected').count(), 0)
  // An hour later they are history.
  await page.clock.install({ time: Date.now() + 3_700_000 })
  await page.reload()
  await state.getByText('All servers are connected').waitFor()
  await failures.getByText('it went wrong').waitFor()
  assertClean(visit)
})

test('progress is shown while a tool runs, and it can be cancelled', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/tools/s__progress' })
  const { page } = visit
  await page.getByLabel(/^steps/).fill('1000')
  await page.getByLabel(/^ms/).fill('50')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('of 1000').waitFor()
  await page.getByRole('progressbar', { name: 'Progress' }).waitFor()
  assert.ok(Number(await page.getByRole('progressbar').getAttribute('aria-valuenow')) < 100)
  await page.getByRole('button', { name: 'Cancel' }).click()
  await page.getByText('#1 Cancelled').waitFor()
  const cancelled = async () =>
    (await gateway.ask('POST', '/api/v0/tools/invoke', { name: 's__cancelled' })).content[0].text
  const deadline = Date.now() + 20_000
  while ((await cancelled()) === '[]') assert.ok(Date.now() < deadline, 'the server is told')
  assertClean(visit)
})

test('a description and a text result in Markdown are formatted, without HTML', async (t) => {
  const gateway = await startGateway(t)
  const described = tool('doc', '# Usage\n\n- call **once**\n- see [the page](https://example.com/)\n\n<img src=x>')
  const text = 'Found **two**:\n\n1. `one`\n2. <script>alert(1)</script>\n\n[bad](javascript:alert(1))'
  const echo = tool('echo', 'Returns its arguments as text', { text: { type: 'string' } })
  await gateway.register(stdio('s', { tools: [described, echo] }))
  const visit = await open(t, gateway, { hash: '#/tools/s__doc' })
  const { page } = visit
  const description = page.getByRole('group', { name: 'Description' })
  await description.getByRole('listitem').filter({ hasText: 'call once' }).waitFor()
  assert.equal(await description.getByRole('link').getAttribute('href'), 'https://example.com/')
  await description.getByText('<img src=x>').waitFor()
  await page.getByText(/^about \d+ tokens$/).waitFor()
  await page.goto(`${gateway.url}/#/tools/s__echo`)
  await page.getByLabel(/^text/).fill(text)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  const result = page.getByRole('group', { name: 'Formatted text' })
  await result.getByRole('listitem').filter({ hasText: '<script>alert(1)</script>' }).waitFor()
  assert.equal(await result.getByRole('link').count(), 0)
  await assertAccessible(page, 'Markdown')
  await picture(page, 'markdown')
  await page.getByRole('button', { name: 'Show as text' }).click()
  assert.equal(await page.getByLabel('text', { exact: true }).textContent(), text)
  await page.getByRole('button', { name: 'Show formatted' }).click()
  await result.waitFor()
  assertClean(visit)
})

test('runs are kept over a reload of the page', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/tools/s__echo' })
  const { page } = visit
  await page.getByLabel(/^text/).fill('kept')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  await page.goto(`${gateway.url}/#/tools/s__fail`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Tool error').waitFor()
  await page.reload()
  await page.getByText('#1 Tool error').waitFor()
  await page.goto(`${gateway.url}/#/tools/s__echo`)
  await page.getByText('#1 Succeeded').waitFor()
  await page.getByLabel('text', { exact: true }).getByText('kept').waitFor()
  await page.getByRole('button', { name: 'Run again' }).click()
  await page.getByText('#2 Succeeded').waitFor()
  await page.getByLabel('Compare with').selectOption('#1')
  assertClean(visit)
})

test('a tool is disabled and enabled on its page, and other pages show it at once', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/tools/s__echo' })
  const { page } = visit
  const details = page.getByRole('region', { name: 'Details' })
  await details.getByRole('switch', { name: 's__echo enabled' }).click()
  await details.getByText('disabled: hidden from agents').waitFor()
  assert.equal((await gateway.ask('GET', '/api/v0/tool?name=s__echo')).enabled, false)
  await page.getByLabel('State', { exact: true }).selectOption('off')
  await page.getByText('1 of 37').waitFor()
  // Another user disables it; the page is not reloaded.
  await gateway.ask('POST', '/api/v0/tools/enable?entity=s__echo')
  await page.getByText('0 of 37').waitFor()
  await page.getByText('No tool matches.').waitFor()
  await page.getByRole('button', { name: 'Show all' }).click()
  await page.getByRole('status').getByText('37 tools').waitFor()
  assertClean(visit)
})

test('a thousand tools are searched while typing', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(
    stdio('many', { tools: [tool('needle', 'Sews', { thread: { type: 'string' } })], tool_count: 1000 }),
  )
  const visit = await open(t, gateway, { hash: '#/tools' })
  const { page } = visit
  await page.getByRole('status').getByText('1,001 tools').waitFor()
  const filter = page.getByRole('searchbox', { name: /Filter tools/ })
  for (const [query, found] of [
    ['0999', '1 of 1,001'],
    ['thread', '1 of 1,001'],
    ['filler_09', '100 of 1,001'],
    ['filler', '1,000 of 1,001'],
    ['sews need', '1 of 1,001'],
    ['', '1,001 tools'],
  ]) {
    await filter.fill(query)
    await page.getByText(found, { exact: true }).first().waitFor()
    const rows = await page.locator('[data-row]').count()
    assert.ok(rows < 60, `only what is in sight is on the page, not ${rows} rows`)
  }
  // The keyboard moves through the list far beyond the rows that are rendered.
  await filter.press('ArrowDown')
  await page.keyboard.press('End')
  await page.keyboard.press('ArrowUp')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'many__filler_0999' }).waitFor()
  assertClean(visit)
})

test('progress and log messages of a run are listed as they arrive', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('legacy'))
  await gateway.register(stdio('modern', { era: 'modern' }))
  const visit = await open(t, gateway)
  const { page } = visit
  const notifications = page.getByRole('log', { name: 'Notifications' })
  for (const server of ['legacy', 'modern']) {
    await page.goto(`${gateway.url}/#/tools/${server}__log`)
    await page.getByLabel(/^level/).fill('warning')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await page.getByText('#1 Succeeded').waitFor()
    await notifications.getByText('warning', { exact: true }).waitFor()
    await notifications.getByText('fake: a log line').waitFor()
    await page.goto(`${gateway.url}/#/tools/${server}__progress`)
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await notifications.getByText('2/3, step 2').waitFor()
    await page.getByText('#1 Succeeded').waitFor()
    await page.getByText('3 notifications').waitFor()
  }
  await assertAccessible(page, 'notifications of a run')
  await picture(page, 'notifications')
  assertClean(visit)
})
