// The Activity page: calls as they end, filters in the address, one call with its time line, running it again, and the charts.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startGateway, startIn, stdio } from './gateway.mjs'

const GONE = ['ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED', 'ERR_CONNECTION_RESET']

const rows = (page) => page.getByRole('region', { name: 'Calls' }).getByRole('link')
const details = (page) => page.getByRole('region', { name: 'Details' })

test('calls appear as they end, and the list can be paused', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await page.getByText('No calls yet').waitFor()
  await page.getByText('Live', { exact: true }).waitFor()
  await gateway.call('s__echo', { text: 'one' })
  await rows(page).filter({ hasText: 's__echo' }).waitFor()
  await gateway.call('s__fail')
  await rows(page).first().filter({ hasText: 's__fail' }).waitFor()
  await page.getByRole('button', { name: 'Pause' }).click()
  await page.getByText('Paused', { exact: true }).waitFor()
  await gateway.call('s__add', { a: 1, b: 2 })
  await gateway.call('s__add', { a: 1, b: 2 })
  await page.getByRole('button', { name: '2 new calls' }).waitFor()
  assert.equal(await rows(page).count(), 2)
  await page.getByRole('button', { name: 'Resume' }).click()
  await rows(page).nth(3).waitFor()
  await rows(page).first().filter({ hasText: 's__add' }).waitFor()
  assertClean(visit)
})

test('the list says when its stream is lost, and is complete when the gateway is back', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.call('s__echo', { text: 'before' })
  const visit = await open(t, gateway, { hash: '#/activity', mayFail: GONE })
  const { page } = visit
  await rows(page).filter({ hasText: 's__echo' }).waitFor()
  await gateway.stop()
  await page.getByText('The live list is interrupted').waitFor()
  const again = await startIn(t, gateway.folder, { PORT: new URL(gateway.url).port })
  await again.call('s__add', { a: 1, b: 2 })
  await rows(page).filter({ hasText: 's__add' }).waitFor()
  await page.getByText('Live', { exact: true }).waitFor()
  assert.equal(await rows(page).count(), 2)
  assertClean(visit)
})

test('filters are in the address, and survive a reload and an opened call', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('one'))
  await gateway.register(stdio('two'))
  for (const server of ['one', 'two']) {
    await gateway.call(`${server}__echo`, { text: 'x' })
    await gateway.call(`${server}__fail`)
  }
  await gateway.calls(4)
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await rows(page).nth(3).waitFor()
  await page.getByLabel('Server', { exact: true }).selectOption('two')
  await page.getByLabel('Outcome').selectOption('tool error')
  await rows(page).nth(1).waitFor({ state: 'hidden' })
  await rows(page).filter({ hasText: 'two__fail' }).waitFor()
  assert.match(page.url(), /#\/activity\?server=two&outcome=tool_error$/)
  await rows(page).first().click()
  await details(page).getByText('Why did it fail?').waitFor()
  assert.match(page.url(), /#\/activity\/[0-9a-f]+\?server=two&outcome=tool_error$/)
  await page.reload()
  await details(page).getByText('Why did it fail?').waitFor()
  assert.equal(await page.getByLabel('Outcome').inputValue(), 'tool_error')
  assert.equal(await rows(page).count(), 1)
  // A call that does not fit does not appear; one that fits does.
  await gateway.call('one__fail')
  await gateway.call('two__fail')
  await rows(page).nth(1).waitFor()
  await page.keyboard.press('Escape')
  await page.getByText('Select a call').waitFor()
  assert.match(page.url(), /#\/activity\?server=two&outcome=tool_error$/)
  assert.equal(await rows(page).filter({ hasText: 'one__fail' }).count(), 0)
  await page.getByRole('button', { name: 'Clear', exact: true }).click()
  await rows(page).nth(5).waitFor()
  await page.getByRole('searchbox', { name: 'Filter calls' }).fill('ONE__')
  await page.getByText('No call matches.').waitFor()
  await page.getByRole('searchbox', { name: 'Filter calls' }).fill('one')
  await rows(page).nth(2).waitFor()
  await page.getByRole('button', { name: 'More filters' }).click()
  await page.getByLabel('Tool, prompt or URI').fill('echo')
  await rows(page).nth(1).waitFor({ state: 'hidden' })
  assert.match(page.url(), /q=one&name=echo/)
  await page.getByLabel('Time', { exact: true }).selectOption('Last hour')
  await page.waitForURL(/range=1h/)
  await rows(page).filter({ hasText: 'one__echo' }).waitFor()
  await assertAccessible(page, 'filtered calls')
  await picture(page, 'calls-filtered')
  await page.goto(`${gateway.url}/#/activity?outcome=unheard`)
  await page.getByText('The calls could not be loaded').waitFor()
  await page.getByRole('alert').getByRole('button', { name: 'Clear filters' }).click()
  await rows(page).nth(5).waitFor()
  // The refused request is what was tested.
  visit.seen.errors = visit.seen.errors.filter((error) => !error.includes('400'))
  assertClean(visit)
})

test('a call has a time line with both hops, and runs again with the same arguments', async (t) => {
  const gateway = await startGateway(t, { CALL_LOG: 'full' })
  await gateway.register(stdio('s', {}, { max_concurrency: 1 }))
  await Promise.all([gateway.call('s__slow', { ms: 1100 }), gateway.call('s__add', { a: 19, b: 23 })])
  await gateway.calls(2)
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await rows(page).filter({ hasText: 's__slow' }).click()
  const opened = details(page)
  await opened.getByText('Why was it slow?').waitFor()
  await opened.getByText(/The server s took/).waitFor()
  await opened.getByRole('img', { name: /Time line: Arrived at .*Sent at .*Done at/ }).waitFor()
  for (const segment of ['gateway', 'server']) await opened.locator(`[data-segment=${segment}]`).first().waitFor()
  const steps = opened.getByRole('list', { name: 'Steps of the call' })
  for (const step of ['Arrived', 'Sent', 'Done']) await steps.getByText(step, { exact: true }).waitFor()
  await picture(page, 'call-slow')
  // One of the two had to wait for the other, whichever came first.
  await page.goto(`${gateway.url}/#/activity?name=add`)
  await rows(page).filter({ hasText: 's__add' }).click()
  await opened.getByRole('heading', { name: 'Arguments' }).waitFor()
  // Only what was kept: a time of 0.42 ms is elsewhere on the page.
  const kept = opened.getByRole('region', { name: 'Sent and answered' })
  await kept.getByText('19', { exact: true }).waitFor()
  await kept.getByRole('heading', { name: 'Result' }).waitFor()
  await kept.getByText(/42/).first().waitFor()
  await assertAccessible(page, 'a call with its contents')
  await opened.getByRole('button', { name: 'Run again' }).click()
  await page.waitForURL(/#\/tools\/s__add$/)
  assert.equal(await page.getByLabel(/^a\b/).first().inputValue(), '19')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  await page.goto(`${gateway.url}/#/activity?via=dashboard`)
  await rows(page).filter({ hasText: 's__add' }).waitFor()
  assertClean(visit)
})

test('progress and questions are marks on the time line', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.call('s__slow', { ms: 100 })
  const [call] = await gateway.calls(1)
  const visit = await open(t, gateway)
  const { page } = visit
  // What a client of every kind can cause is tested where marks are recorded; here they are given.
  await page.route(`**/api/v0/calls/${call.id}`, async (route) => {
    const answer = await route.fetch()
    const marks = ['progress', 'progress', 'input', 'answer'].map((kind, at) => ({
      kind,
      at_ms: at * 20,
    }))
    const times = {
      duration_ms: 100,
      sent_ms: 10,
      first_byte_ms: 15,
      queue_ms: 5,
      upstream_ms: 60,
      input_ms: 20,
      rounds: 1,
    }
    await route.fulfill({ response: answer, json: { ...(await answer.json()), ...times, marks } })
  })
  await page.goto(`${gateway.url}/#/activity/${call.id}`)
  const opened = details(page)
  for (const [mark, number] of Object.entries({ progress: 2, asked: 1, answered: 1 })) {
    await opened.locator(`[data-mark=${mark}]`).first().waitFor()
    assert.equal(await opened.locator(`[data-mark=${mark}]`).count(), number)
  }
  for (const segment of ['waiting', 'input', 'answer']) await opened.locator(`[data-segment=${segment}]`).waitFor()
  const line = opened.getByRole('img', {
    name: /Time line: Arrived .*Waited .*Sent .*First byte .*Asked for input .*Done/,
  })
  await line.waitFor()
  await assertAccessible(page, 'a time line with marks')
  await picture(page, 'call-marks')
  assertClean(visit)
})

test('prompts and resources run again, too', async (t) => {
  const gateway = await startGateway(t, { CALL_LOG: 'full' })
  await gateway.register(stdio('s'))
  const [prompt] = (await gateway.ask('GET', '/api/dashboard/prompts')).prompts
  const given = Object.fromEntries(prompt.arguments.map(({ name }) => [name, 'Anna']))
  await gateway.ask('POST', `/api/dashboard/prompts/${prompt.canonical_name}/render`, { arguments: given })
  await gateway.ask('POST', '/api/dashboard/resources/read', { uri: 'fake://text' })
  await gateway.calls(2)
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await rows(page).filter({ hasText: prompt.canonical_name }).click()
  await details(page).getByRole('heading', { name: 'Arguments' }).waitFor()
  await details(page).getByRole('button', { name: 'Run again' }).click()
  await page.waitForURL(/#\/prompts\//)
  assert.equal(await page.getByLabel(prompt.arguments[0].name).first().inputValue(), 'Anna')
  await page.goto(`${gateway.url}/#/activity`)
  await rows(page).filter({ hasText: 'fake://text' }).click()
  await details(page).getByRole('button', { name: 'Run again' }).click()
  await page.waitForURL(/#\/resources\/s\/fake/)
  assertClean(visit)
})

test('a denied call says why, and what is not kept says how to keep it', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.call('s__unheard_of')
  const [call] = await gateway.calls(1)
  const visit = await open(t, gateway, { hash: `#/activity/${call.id}` })
  const { page } = visit
  const opened = details(page)
  await opened.getByRole('heading', { name: 'Why was it denied?' }).waitFor()
  await opened.getByText(/does not exist under this name, is disabled/).waitFor()
  await opened.getByText('CALL_LOG=full').waitFor()
  assert.equal(await opened.locator('[data-segment=server]').count(), 0)
  await assertAccessible(page, 'a denied call')
  await picture(page, 'call-denied')
  await page.goto(`${gateway.url}/#/activity/${'0'.repeat(24)}`)
  await page.getByText('There is no record of this call').waitFor()
  visit.seen.errors = visit.seen.errors.filter((error) => !error.includes('404'))
  assertClean(visit)
})

test('charts of a server and of the last hour have a table behind them and lead to the calls', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('busy'))
  await gateway.register(stdio('calm'))
  for (let call = 0; call < 5; call++) await gateway.call('busy__echo', { text: 'x' })
  await gateway.call('busy__fail')
  await gateway.call('calm__echo', { text: 'x' })
  await gateway.calls(7)
  const visit = await open(t, gateway, { hash: '#/servers/busy' })
  const { page } = visit
  const section = page.getByRole('region', { name: 'Calls', exact: true })
  await section.getByRole('img', { name: /^Calls per minute: 6 calls in the last hour/ }).waitFor()
  await section.getByRole('img', { name: /^Errors per minute: 1 error in/ }).waitFor()
  await section.getByRole('img', { name: /^Duration: half of the calls took at most/ }).waitFor()
  const table = section.getByRole('region', { name: 'Errors per minute as a table' })
  await section.getByText('As a table').nth(1).click()
  assert.equal(await table.getByRole('row').count(), 61)
  await assertAccessible(page, 'charts of a server')
  await picture(page, 'server-charts')
  await section.getByRole('button', { name: '30d' }).click()
  await section.getByRole('img', { name: /6 calls in the last 30 days/ }).waitFor()
  assert.match(page.url(), /window=30d/)
  await section.getByRole('link', { name: 'See the calls' }).click()
  await page.waitForURL(/#\/activity\?server=busy&range=30d/)
  await rows(page).nth(5).waitFor()
  await page.goto(`${gateway.url}/#/`)
  const hour = page.getByRole('region', { name: 'Last hour' })
  await hour.getByRole('img', { name: /7 calls in the last hour.*1 error/ }).waitFor()
  await hour.getByRole('link', { name: /calm/ }).click()
  await page.waitForURL(/#\/activity\?server=calm&range=1h/)
  await rows(page).filter({ hasText: 'calm__echo' }).waitFor()
  assertClean(visit)
})

test('a gateway that records nothing says so', async (t) => {
  const gateway = await startGateway(t, { CALL_LOG: 'off' })
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await page.getByRole('heading', { name: 'Calls are not recorded' }).waitFor()
  await page.goto(`${gateway.url}/#/`)
  await page.getByText('Calls are not recorded: the gateway was started with CALL_LOG=off').waitFor()
  await page.goto(`${gateway.url}/#/servers/s`)
  await page.getByText('Calls are not recorded (CALL_LOG=off)').waitFor()
  assertClean(visit)
})

test('records that cannot be written are said until they can', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.call('s__echo', { text: 'x' })
  await gateway.calls(1)
  const visit = await open(t, gateway, { hash: '#/activity' })
  const alert = visit.page.getByRole('alert').filter({ hasText: 'Calls cannot be recorded' })
  await rows(visit.page).first().waitFor()
  const limit = (bytes) =>
    assert.equal(spawnSync('prlimit', [`--pid=${gateway.child.pid}`, `--fsize=${bytes}:`]).status, 0)
  limit('1')
  await gateway.call('s__echo', { text: 'y' })
  await alert.waitFor()
  await assertAccessible(visit.page, 'records that cannot be written')
  limit('unlimited')
  await alert.waitFor({ state: 'hidden' })
  assertClean(visit)
})

/** Writes copies of a recorded call into the file of a stopped gateway, one for each second before it. */
function addRecords(folder, number) {
  const database = new DatabaseSync(join(folder, 'toolgate.records.db'))
  const call = database.prepare('SELECT * FROM calls').get()
  const written = ['id', 'at', 'server', 'name', 'outcome', 'searched', 'record']
  const columns = Object.keys(call)
  const values = columns.map((column) => (written.includes(column) ? `:${column}` : column))
  const insert = database.prepare(
    `INSERT INTO calls (${columns.join(', ')}) SELECT ${values.join(', ')} FROM calls WHERE id = '${call.id}'`,
  )
  const outcomes = ['ok', 'ok', 'ok', 'ok', 'ok', 'ok', 'tool_error', 'timed_out', 'denied', 'ok']
  database.exec('BEGIN')
  for (let step = 1; step <= number; step++) {
    const at = call.at - step * 1000
    const id = (BigInt(at) << 16n).toString(16).padStart(16, '0') + call.id.slice(16)
    const [server, name] = [`server${step % 20}`, `tool_${step % 500}`]
    const outcome = outcomes[step % outcomes.length]
    const record = JSON.stringify({ ...JSON.parse(call.record), id, at_ms: at, server, name, outcome })
    insert.run({ id, at, server, name, outcome, searched: `${server}\n${name}\nagent ${step}\n/mcp`, record })
  }
  database.exec('COMMIT')
  database.close()
}

test('among 100,000 records, filters answer quickly and the list stays small', async (t) => {
  const first = await startGateway(t)
  await first.register(stdio('s'))
  await first.call('s__echo', { text: 'x' })
  await first.calls(1)
  await first.stop()
  addRecords(first.folder, 100_000)
  const gateway = await startIn(t, first.folder)
  const visit = await open(t, gateway, { hash: '#/activity' })
  const { page } = visit
  await rows(page).nth(5).waitFor()
  for (const query of [
    '',
    'server=server7',
    'outcome=timed_out',
    'name=tool_123',
    'server=server3&name=tool_123',
    'via=sse',
    'q=agent 99999',
    'q=nowhere to be found',
    'range=24h&outcome=denied',
    'until=2020-01-01T00:00:00Z',
  ]) {
    const answered = page.waitForResponse((response) => /\/api\/v0\/calls\?/.test(response.url()))
    // Elsewhere first, so that each list is read anew.
    await page.evaluate(() => (location.hash = '#/system'))
    await page.evaluate((hash) => (location.hash = hash), `#/activity?${new URLSearchParams(query)}`)
    const response = await answered
    await response.finished()
    const timing = response.request().timing()
    console.log(
      `  100,000 records, ${query || 'no filter'}: ${Math.round(timing.responseEnd - timing.requestStart)} ms`,
    )
  }
  await page.evaluate(() => (location.hash = '#/activity'))
  await rows(page).nth(5).waitFor()
  // Older pages are loaded while scrolling; only what is near the visible part is in the page.
  const list = page.getByRole('region', { name: 'Calls' })
  for (let step = 0; step < 5; step++) {
    const height = await list.evaluate((box) => box.scrollHeight)
    await list.evaluate((box) => (box.scrollTop = box.scrollHeight))
    await page.waitForFunction(([box, before]) => box.scrollHeight > before, [await list.elementHandle(), height])
  }
  assert.ok((await rows(page).count()) < 100, 'few rows are in the page')
  const begun = Date.now()
  await Promise.all(Array.from({ length: 200 }, () => gateway.call('s__echo', { text: 'x' })))
  await page.getByRole('button', { name: '200 new calls' }).click()
  await rows(page).first().filter({ hasText: 's__echo' }).waitFor()
  console.log(`  200 calls were made and shown after ${Date.now() - begun} ms`)
  assert.ok((await rows(page).count()) < 100, 'few rows are in the page')
  assertClean(visit)
})
