// Finding one's way: headings in the list of tools, search over everything, navigation, themes, and unknown addresses.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startGateway, stdio, tool } from './gateway.mjs'

test('tools are under the name of their server, and a switch appears where one points', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('first', { tools: [], tool_count: 40 }))
  await gateway.register(stdio('second', { tools: [tool('needle', 'Sews')] }))
  const visit = await open(t, gateway, { hash: '#/tools' })
  const { page } = visit
  const list = page.getByRole('region', { name: 'Tools' }).last()
  const heading = (name) => list.getByRole('link', { name, exact: true })
  await heading('first').waitFor()
  await list.getByText('40 tools').waitFor()
  // The server is read out, but the heading shows it.
  const row = list.getByRole('link', { name: /first__filler_0000/ })
  await row.waitFor()
  const opacity = () =>
    page
      .getByRole('switch', { name: 'first__filler_0000 enabled' })
      .evaluate((element) => getComputedStyle(element.parentElement).opacity)
  assert.equal(await opacity(), '0')
  await row.hover()
  assert.equal(await opacity(), '1')
  await page.mouse.move(0, 0)
  assert.equal(await opacity(), '0')
  await row.focus()
  assert.equal(await opacity(), '1')
  await page.keyboard.press('Tab')
  await page.getByRole('switch', { name: 'first__filler_0000 enabled' }).and(page.locator(':focus')).waitFor()
  await page.keyboard.press('Space')
  await list.getByRole('switch', { name: 'first__filler_0000 enabled', checked: false }).waitFor()
  // The keys pass headings.
  await page.keyboard.press('Shift+Tab')
  await page.keyboard.press('End')
  await list
    .getByRole('link', { name: /second__needle/ })
    .and(page.locator(':focus'))
    .waitFor()
  await heading('second').waitFor()
  await page.keyboard.press('ArrowUp')
  await list
    .getByRole('link', { name: /first__filler_0039/ })
    .and(page.locator(':focus'))
    .waitFor()
  // Results of a search are sorted by relevance, without headings.
  await page.getByRole('searchbox', { name: /Filter tools/ }).fill('needle')
  await list.getByRole('link', { name: /second__needle/ }).waitFor()
  assert.equal(await heading('second').count(), 0)
  assertClean(visit)
})

test('the button that runs a tool is always in view', async (t) => {
  const gateway = await startGateway(t)
  const many = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`field_${at}`, { type: 'string' }]))
  await gateway.register(stdio('s', { tools: [tool('long', 'Has many parameters', many)] }))
  const visit = await open(t, gateway, { hash: '#/tools/s__long' })
  const { page } = visit
  const run = page.getByRole('button', { name: /^Run/ })
  const isInView = async () => {
    const { y, height } = await run.boundingBox()
    return y >= 0 && y + height <= 800
  }
  await run.waitFor()
  assert.ok(await isInView())
  await page.getByLabel(/^field_0/).fill('x'.repeat(50))
  await run.click()
  await page.getByText('#1 Succeeded').waitFor()
  const details = page.locator('[data-details]')
  for (const part of [0, 0.5, 1]) {
    await details.evaluate((element, part) => element.scrollTo(0, element.scrollHeight * part), part)
    assert.ok(await isInView(), `at ${part} of the page`)
  }
  await picture(page, 'run-in-view')
  assertClean(visit)
})

test('Ctrl+K finds pages, servers, tools and actions, by keyboard only', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('local'))
  const visit = await open(t, gateway)
  const { page } = visit
  await page.getByText('All servers are connected').waitFor()
  await page.keyboard.press('Control+k')
  await page.getByRole('option', { name: /page Resources/ }).waitFor()
  await assertAccessible(page, 'search')
  await picture(page, 'search')
  const go = async (words, option) => {
    await page.keyboard.press('Control+k')
    await page.keyboard.type(words)
    await page.getByRole('option', { name: option }).waitFor()
    await page.keyboard.press('Enter')
  }
  await go('resources', /page Resources/)
  await page.getByRole('heading', { name: 'Resources' }).waitFor()
  await go('dark theme', /action Dark theme/)
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark')
  await go('disable local', /action Disable local/)
  await page.getByText('local disabled', { exact: true }).waitFor()
  assert.equal((await gateway.ask('GET', '/api/v0/servers/local')).status, 'disabled')
  await go('enable local', /action Enable local/)
  await page.getByText('local enabled', { exact: true }).waitFor()
  await go('edit local', /action Edit local/)
  await page.getByRole('heading', { name: 'Edit local' }).waitFor()
  await go('local add numbers', /tool local__add/)
  await page.getByRole('heading', { name: 'local__add' }).waitFor()
  await go('pair', /template/)
  await page.getByLabel('left', { exact: true }).waitFor()
  assertClean(visit)
})

for (const width of [390, 320]) {
  test(`all pages are in the navigation of a screen that is ${width} wide`, async (t) => {
    const gateway = await startGateway(t)
    const visit = await open(t, gateway, { width, height: 700 })
    const links = visit.page.getByRole('navigation', { name: 'Pages' }).getByRole('link')
    assert.equal(await links.count(), 9)
    for (const link of await links.all()) {
      const { x, width: own } = await link.boundingBox()
      assert.ok(x >= 0 && x + own <= width, `${await link.textContent()} is at ${x}`)
    }
    assertClean(visit)
  })
}

test('an address without a page says so, and a typed path leads to its page', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/nonsense' })
  const { page } = visit
  await page.getByRole('heading', { name: 'Page not found', level: 2 }).waitFor()
  await page.getByText('#/nonsense').waitFor()
  assert.equal(await page.locator('[aria-current=page]').count(), 0)
  await assertAccessible(page, 'an unknown page')
  await page.getByRole('link', { name: 'Show the overview' }).click()
  await page.getByText('All servers are connected').waitFor()
  for (const name of ['activity', 'servers', 'tools', 'groups', 'prompts', 'resources', 'system']) {
    await page.goto(`${gateway.url}/${name}`)
    await page.locator(`[aria-current=page][href="#/${name}"]`).waitFor()
    assert.equal(page.url(), `${gateway.url}/#/${name}`)
  }
  assertClean(visit)
})
