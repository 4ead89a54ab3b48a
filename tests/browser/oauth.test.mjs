// Servers that require a sign-in: the dashboard opens the authorization page, waits, and then shows the result.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertClean, open } from './browser.mjs'
import { startFake, startGateway } from './gateway.mjs'
import { startProvider } from './provider.mjs'

async function prepare(t, hash) {
  const gateway = await startGateway(t, { OAUTH_ALLOW_PRIVATE: 'true' })
  const provider = await startProvider(t)
  const fake = await startFake(t, { bearer: provider.token, oauth_metadata: true, authorization_server: provider.url })
  const visit = await open(t, gateway, { hash })
  return { gateway, provider, fake, visit, page: visit.page }
}

async function add(page, url) {
  await page.getByLabel('URL', { exact: true }).fill(url)
  await page.getByLabel('Name', { exact: true }).fill('secured')
  const opened = page.context().waitForEvent('page')
  await page.getByRole('button', { name: 'Add secured' }).click()
  return opened
}

test('a server is added by signing in, and authorized again later', async (t) => {
  const { gateway, provider, fake, visit, page } = await prepare(t, '#/servers/add?by=url')
  const first = await add(page, fake.url)
  await page.getByText('secured requires you to sign in').waitFor()
  await first.getByRole('link', { name: 'Allow' }).click()
  await first.getByRole('heading', { name: 'Authorization successful' }).waitFor()
  // The dashboard is not used meanwhile.
  await page.getByRole('heading', { name: 'secured' }).waitFor()
  await page.getByText('secured is connected: 37 tools').waitFor()
  const called = await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'secured__echo', text: 'hello' })
  assert.equal(called.content[0].text, 'hello')

  const opened = page.context().waitForEvent('page')
  await page.getByRole('button', { name: 'Sign in again' }).click()
  const second = await opened
  await second.getByRole('link', { name: 'Allow' }).click()
  await second.getByRole('heading', { name: 'Authorization successful' }).waitFor()
  await page.getByText('Signed in to secured').waitFor()
  const all = (await page.content()) + visit.seen.bodies.join('\n')
  for (const secret of [provider.token, 'refresh-0001', 'code-0'])
    assert.ok(!all.includes(secret), `${secret} is shown`)
  assertClean(visit)
})

test('a refused sign-in is reported, and can be tried again', async (t) => {
  const { gateway, fake, visit, page } = await prepare(t, '#/servers/add?by=url')
  const first = await add(page, fake.url)
  await first.getByRole('link', { name: 'Deny' }).click()
  await first.getByRole('heading', { name: 'Authorization failed' }).waitFor()
  await page.getByRole('alert').filter({ hasText: 'secured was not authorized' }).getByText('access_denied').waitFor()
  assert.deepEqual(await gateway.ask('GET', '/api/v0/servers'), [])
  const opened = page.context().waitForEvent('page')
  await page.getByRole('button', { name: 'Try again' }).click()
  const second = await opened
  await second.getByRole('link', { name: 'Allow' }).click()
  await page.getByRole('heading', { name: 'secured' }).waitFor()
  assertClean(visit)
})

test('a pasted server that requires a sign-in leads to it too', async (t) => {
  const { fake, visit, page } = await prepare(t, '#/servers/add?by=paste')
  await page
    .getByLabel('Configuration file, or part of it')
    .fill(JSON.stringify({ mcpServers: { secured: { url: fake.url } } }))
  const opened = page.context().waitForEvent('page')
  await page.getByRole('button', { name: 'Import 1 server' }).click()
  const first = await opened
  await first.getByRole('link', { name: 'Allow' }).click()
  await page.getByRole('heading', { name: 'Import finished: 1 added' }).waitFor()
  await page.getByRole('link', { name: 'secured', exact: true }).waitFor()
  assertClean(visit)
})
