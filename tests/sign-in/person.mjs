// A person with a browser: Chromium, with the packages of `tests/browser`. Each person has their own cookies.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { after } from 'node:test'
import { PATIENCE } from './programs.mjs'

const { BROWSER_PACKAGES, CHROMIUM = '/usr/bin/chromium', SCREENSHOTS } = process.env
const packages = createRequire(join(BROWSER_PACKAGES, 'package.json'))
const { chromium } = packages('playwright-core')
const axe = readFileSync(packages.resolve('axe-core/axe.min.js'), 'utf8')

/** One browser for each test file. */
let browser

async function launch() {
  const options = { executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] }
  // Chromium itself sometimes crashes at start on a machine without a desktop; that is not a failure of the gateway.
  for (let attempts = 1; ; attempts++) {
    try {
      return await chromium.launch(options)
    } catch (error) {
      if (attempts === 3) throw error
    }
  }
}

after(() => browser?.close())

/** A browser of somebody who is not signed in anywhere. `mayFail` has parts of console errors that are expected. */
export async function person(test, gateway, { mayFail = [], ...options } = {}) {
  browser ??= await launch()
  const context = await browser.newContext({ ignoreHTTPSErrors: true, ...options })
  context.setDefaultTimeout(PATIENCE)
  // The pages of the identity provider want fonts from the internet.
  await context.route(/^https?:\/\/(?!localhost|127\.0\.0\.1)/, (route) => route.abort())
  const errors = []
  context.on('console', (message) => {
    const isOurs = message.location().url.startsWith(gateway.url)
    const isExpected = mayFail.some((part) => message.text().includes(part))
    if (message.type() === 'error' && isOurs && !isExpected) errors.push(message.text())
  })
  context.on('weberror', (error) => errors.push(error.error().message))
  test.after(async () => {
    await context.close()
    assert.deepEqual(errors, [], 'no error and no violation of the content security policy reaches the console')
  })
  return new Person(context, gateway)
}

class Person {
  constructor(context, gateway) {
    Object.assign(this, { context, gateway })
  }

  /** Opens the address at which an agent asks. */
  async open(url) {
    this.page = await this.context.newPage()
    await this.page.goto(String(url))
    return this.page
  }

  async heading(name) {
    try {
      await this.page.getByRole('heading', { name, level: 1 }).waitFor()
    } catch (error) {
      const told = await this.page.locator('body').innerText()
      throw new Error(`the page is not "${name}" but ${this.page.url()}: ${told}`, { cause: error })
    }
  }

  click(name) {
    return this.page.getByRole('button', { name }).click()
  }

  /** Signs in at the identity provider, from the page that names the agent. */
  async signInAtProvider(login) {
    await this.heading('Sign in')
    assert.ok(this.page.url().startsWith(this.gateway.url), 'the first page is one of the gateway')
    await this.click('Sign in with localhost')
    await this.page.getByPlaceholder('Enter any login').fill(login)
    await this.page.getByPlaceholder('and password').fill('any')
    await this.click('Sign-in')
    await this.click('Continue')
  }

  async signInWithToken(token) {
    await this.heading('Sign in')
    await this.page.getByLabel('Your access token').fill(token)
    await this.click('Sign in')
  }

  /** Allows an agent what the page of the gateway describes. */
  async allow(name, { endpoint = '/mcp', username = 'anna' } = {}) {
    await this.heading(`Allow ${name} to use your tools?`)
    const told = await this.page.getByRole('main').innerText()
    for (const part of [name, username, `${this.gateway.url}${endpoint}`, '1 server with']) {
      assert.ok(told.includes(part), `the page does not say ${part}: ${told}`)
    }
    await this.click('Allow')
  }

  /** The whole way of somebody whose agent asks for the first time. */
  async signInAndAllow(url, name) {
    await this.open(url)
    await this.signInAtProvider('anna')
    await this.allow(name)
  }
}

const WIDTHS = [1280, 390]

/** Takes pictures of a page, wide and narrow, light and dark, and checks how it can be read. */
export async function photograph(page, name) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme })
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 })
      const path = join(SCREENSHOTS, `${name}-${width}-${colorScheme}.png`)
      await page.screenshot({ path, fullPage: true })
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      assert.ok(overflow <= 0, `${name} is wider than ${width} pixels`)
    }
    await assertAccessible(page, `${name}, ${colorScheme}`)
  }
}

/** Fails on anything that axe-core calls serious or critical. */
async function assertAccessible(page, name) {
  // Evaluated by the debugger, to which the page's content security policy does not apply.
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`)
  assert.deepEqual(told, [], `${name} has no serious violation`)
}
