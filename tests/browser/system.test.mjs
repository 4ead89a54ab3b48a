// The system page: what is used of each limit, and what was refused, follow the gateway while the page is open.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startFake, startGateway } from './gateway.mjs'

const batch = (size) =>
  Array.from({ length: size }, (_, id) => ({ jsonrpc: '2.0', id, method: 'tools/list', params: {} }))

for (const [scheme, size, width, height] of [
  ['light', 'wide', 1280, 1000],
  ['dark', 'narrow', 390, 1400],
]) {
  test(`limits are shown with their use and their refusals, ${scheme} and ${size}`, async (t) => {
    const gateway = await startGateway(t, { MAX_CALLS: '1' })
    const fake = await startFake(t)
    await gateway.register({ name: 's', transport: 'streamable_http', url: fake.url })
    const visit = await open(t, gateway, { hash: '#/system', width, height, scheme })
    const { page } = visit
    const limits = page.getByRole('region', { name: 'Limits' })
    const calls = limits.getByRole('listitem').filter({ hasText: 'MAX_CALLS' })
    await calls.getByText('nothing refused').waitFor()
    const meter = calls.getByRole('meter', { name: 'Calls in flight' })
    assert.equal(await meter.getAttribute('aria-valuetext'), '0 of 1')
    for (const variable of ['MAX_CONNECTIONS', 'MAX_BUFFERED_MB', 'MAX_PROCESSES', 'MAX_STREAMS'])
      await limits.getByText(variable, { exact: true }).waitFor()
    assert.equal(await limits.getByText('Also refused').count(), 0)

    // A row that is updated in place stays the same element.
    const row = await calls.elementHandle()
    const hold = new AbortController()
    t.after(() => hold.abort())
    const held = fetch(`${gateway.url}/api/v0/tools/invoke`, {
      method: 'POST',
      body: JSON.stringify({ name: 's__slow', ms: 60_000 }),
      signal: hold.signal,
    }).catch(() => {})
    await calls.getByText('full', { exact: true }).waitFor()
    assert.equal(await meter.getAttribute('aria-valuetext'), '1 of 1')
    await assert.rejects(gateway.ask('POST', '/api/v0/tools/invoke', { name: 's__echo', text: 'hi' }), /429/)
    await calls.getByText('refused 1 time', { exact: true }).waitFor()
    await assert.rejects(gateway.ask('POST', '/mcp', batch(101)), /400/)
    const refused = limits.getByRole('listitem').filter({ hasText: 'Messages in a batch' })
    await limits.getByText('Also refused').waitFor()
    await refused.getByText('refused 1 time', { exact: true }).waitFor()
    await assertAccessible(page, `limits ${scheme} ${size}`)
    await picture(page, `system-limits-${scheme}-${size}`)

    // The other limits are one key away, and stay open while the numbers change.
    const more = limits.getByText(/more limits without refused requests/)
    await more.focus()
    await page.keyboard.press('Enter')
    const message = limits.getByRole('listitem').filter({ hasText: 'Size of a message from a server' })
    await message.getByText('MAX_MESSAGE_MB').waitFor()
    await message.getByText('64 MB').waitFor()
    hold.abort()
    await held
    await calls.getByText('full', { exact: true }).waitFor({ state: 'hidden' })
    assert.equal(await meter.getAttribute('aria-valuetext'), '0 of 1')
    assert.ok(await row.evaluate((element) => element.isConnected), 'rows are updated, not replaced')
    assert.ok(await message.isVisible())
    await limits.scrollIntoViewIfNeeded()
    await picture(page, `system-limits-open-${scheme}-${size}`)
    assertClean(visit)
  })
}
