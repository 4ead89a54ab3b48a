// A page in Chromium whose requests may go only to the gateway, and whose console must show no errors.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { after } from 'node:test'
import { chromium } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
/** A timeout that is long enough for a busy machine. */
const PATIENCE = 30_000

/** One browser for each test file; each visit has its own context. */
let browser

async function launch() {
  const options = {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu'],
  }
  // Chromium itself sometimes crashes at start on a machine without a desktop; that is not a failure of the dashboard.
  for (let attempts = 1; ; attempts++) {
    try {
      return await chromium.launch(options)
    } catch (error) {
      if (attempts === 3) throw error
    }
  }
}

after(() => browser?.close())

/** Opens the dashboard. `seen` has all requests and responses. */
export async function open(
  test,
  gateway,
  { hash = '#/', width = 1280, height = 800, scheme = 'light', mayFail = [] } = {},
) {
  browser ??= await launch()
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: scheme,
    permissions: ['clipboard-read', 'clipboard-write'],
  })
  test.after(() => context.close())
  const page = await context.newPage()
  page.setDefaultTimeout(PATIENCE)
  const seen = { foreign: [], errors: [], bodies: [] }
  page.on('request', (request) => {
    const url = request.url()
    if (!url.startsWith(`${gateway.url}/`) && !/^(data|blob):/.test(url)) seen.foreign.push(url)
  })
  page.on('console', (message) => {
    if (message.type() === 'error' && !mayFail.some((part) => message.text().includes(part)))
      seen.errors.push(message.text())
  })
  page.on('pageerror', (error) => seen.errors.push(error.message))
  page.on('response', async (response) => {
    // A stream does not end, so it is not waited for.
    const isStream = response.headers()['content-type']?.startsWith('text/event-stream')
    if (response.url().includes('/api/') && !isStream) {
      seen.bodies.push(await response.text().catch(() => ''))
    }
  })
  await page.goto(`${gateway.url}/${hash}`)
  await page.getByRole('navigation', { name: 'Pages' }).waitFor()
  return { page, context, seen }
}

/** What must hold at the end of every visit. */
export function assertClean({ seen }) {
  assert.deepEqual(seen.foreign, [], 'no request leaves the gateway')
  assert.deepEqual(seen.errors, [], 'no error reaches the console')
}

/** Fails on anything that axe-core calls serious or critical. */
export async function assertAccessible(page, name) {
  // Evaluated by the debugger, to which the page's content security policy does not apply.
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  const serious = violations.filter((one) => one.impact === 'serious' || one.impact === 'critical')
  const told = serious.map(
    (one) =>
      `${one.id}: ${one.help}: ${one.nodes
        .map((node) => node.html)
        .slice(0, 3)
        .join(' | ')}`,
  )
  assert.deepEqual(told, [], `${name} has no serious violation`)
}

export function picture(page, name) {
  const folder = process.env.SCREENSHOTS
  return folder ? page.screenshot({ path: join(folder, `${name}.png`) }) : undefined
}
