// Every page on which people sign in and agree, with pictures: what it says, how it looks, and where its buttons lead.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startCallback } from './callback.mjs'
import { publish } from './documents.mjs'
import { startGateway } from './gateway.mjs'
import { person, photograph } from './person.mjs'
import { freePort } from './programs.mjs'
import { withProvider } from './provider.mjs'

const CHALLENGE = 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
/** What the console says about pages that are errors. */
const ERRORS = ['400 (Bad Request)', '401 (Unauthorized)', '403 (Forbidden)', '503 (Service Unavailable)']
const LONG = `${'Quarterly-Report-Assistant-'.repeat(4)}of the department for very long names`

/** Registers software, and returns its client id. */
async function register(gateway, name, redirectUri) {
  const body = JSON.stringify({
    client_name: name,
    redirect_uris: [redirectUri],
    token_endpoint_auth_method: 'none',
  })
  const headers = { 'content-type': 'application/json' }
  const answer = await fetch(`${gateway.url}/register`, { method: 'POST', headers, body })
  assert.equal(answer.status, 201, await answer.clone().text())
  return (await answer.json()).client_id
}

/** The address at which software asks. `more` replaces parameters. */
function authorize(gateway, clientId, redirectUri, more = {}) {
  const parameters = {
    response_type: 'code',
    client_id: clientId,
    redirect_uri: redirectUri,
    code_challenge: CHALLENGE,
    code_challenge_method: 'S256',
    state: 'of-the-agent',
    ...more,
  }
  return `${gateway.url}/authorize?${new URLSearchParams(parameters)}`
}

test('pages of a gateway with an identity provider', async (t) => {
  const gateway = await startGateway(t, withProvider(t))
  const callback = await startCallback(t)
  const clientId = await register(gateway, 'Desk agent', callback.url)
  const anna = await person(t, gateway, { mayFail: ERRORS })
  const see = async (url, heading, name) => {
    await anna.open(url)
    await anna.heading(heading)
    await photograph(anna.page, name)
  }

  await see(`${gateway.url}/login`, 'Sign in', 'provider-sign-in')
  const unnamed = await register(gateway, undefined, callback.url)
  await see(authorize(gateway, unnamed, callback.url), 'Sign in', 'provider-sign-in-unnamed')
  await see(authorize(gateway, clientId, callback.url), 'Sign in', 'provider-sign-in-for-agent')
  await anna.signInAtProvider('anna')
  await anna.heading('Allow Desk agent to use your tools?')
  await photograph(anna.page, 'consent-local')

  await anna.click('Deny')
  await anna.heading('Connected')
  const denied = await callback.answer()
  assert.deepEqual(
    ['error', 'state', 'iss'].map((name) => denied.get(name)),
    ['access_denied', 'of-the-agent', gateway.url],
  )

  await t.test('software that is known in other ways', async (t) => {
    const hosted = 'https://localhost/callback'
    const resource = `${gateway.url}/v0/servers/fixture/mcp`
    const self = await register(gateway, LONG, hosted)
    await see(authorize(gateway, self, hosted, { resource }), /^Allow Quarterly/, 'consent-hosted')
    const document = await publish(t, 'Documented agent', ['http://127.0.0.1/callback'])
    const question = 'Allow Documented agent to use your tools?'
    const proven = authorize(gateway, document, new URL('/callback', document))
    await see(proven, question, 'consent-document')
    assert.match(await anna.page.getByRole('main').innerText(), /Proven by localhost/)
    await anna.click('Allow')
    await anna.heading('Connected')
    // The answer is remembered for what is proven, and not for a program that uses the same document.
    await anna.open(proven)
    await anna.heading('Connected')
    assert.ok(new URL(anna.page.url()).searchParams.get('code'))
    await see(authorize(gateway, document, callback.url), question, 'consent-document-local')
    const metadata = { client_name: 'Agent of the company', redirect_uris: [hosted] }
    const { client_id: known } = await gateway.ask('POST', '/api/v0/oauth-clients', metadata)
    await see(authorize(gateway, known, hosted), 'Allow Agent of the company to use your tools?', 'consent-admin')
  })

  const failed = 'This did not work'
  await see(authorize(gateway, clientId, 'http://127.0.0.1/other'), failed, 'wrong-redirect')
  await see(authorize(gateway, 'nobody', callback.url), failed, 'unknown-client')
  await see(authorize(gateway, clientId, callback.url, { code_challenge_method: 'plain' }), failed, 'wrong-request')
  await anna.page.getByRole('link', { name: 'Go back to the program that sent you here' }).click()
  await anna.heading('Connected')
  assert.equal((await callback.answer()).get('error'), 'invalid_request')

  await see(`${gateway.url}/login`, 'Signed in', 'signed-in')
  await anna.click('Sign out')
  await anna.heading('Sign in')

  await t.test('two agents that ask at once', async (t) => {
    const two = await person(t, gateway, { mayFail: ERRORS })
    const first = await two.open(authorize(gateway, clientId, callback.url))
    const second = await two.open(authorize(gateway, clientId, callback.url))
    two.page = first
    await two.signInAtProvider('anna')
    await two.heading('Allow Desk agent to use your tools?')
    two.page = second
    // The provider remembers the person.
    await two.click('Sign in with localhost')
    await two.allow('Desk agent', { endpoint: '' })
    await two.heading('Connected')
    assert.ok((await callback.answer()).get('code'))
    two.page = first
    await two.click('Allow')
    await two.heading('Decide again')
    await photograph(first, 'decide-again')
    await first.getByRole('link', { name: 'Show the question again' }).click()
    await two.allow('Desk agent', { endpoint: '' })
    await two.heading('Connected')
    assert.ok((await callback.answer()).get('code'))
  })

  await t.test('somebody who may not use this gateway', async (t) => {
    const boris = await person(t, gateway, { mayFail: ERRORS })
    await boris.open(authorize(gateway, clientId, callback.url))
    await boris.signInAtProvider('boris')
    await boris.heading('You are not signed in')
    await photograph(boris.page, 'not-allowed')
    const again = boris.page.getByRole('link', { name: 'Try again' })
    assert.equal(new URL(await again.getAttribute('href'), gateway.url).searchParams.get('client_id'), clientId)
  })
})

test('pages of a gateway without an identity provider', async (t) => {
  const gateway = await startGateway(t)
  const token = await gateway.createUser('anna')
  const callback = await startCallback(t)
  const clientId = await register(gateway, 'Desk agent', callback.url)
  const anna = await person(t, gateway, { mayFail: ERRORS })
  await anna.open(authorize(gateway, clientId, callback.url))
  await anna.heading('Sign in')
  await photograph(anna.page, 'token-sign-in')
  await anna.signInWithToken('not-a-token-of-anybody')
  await anna.page.getByRole('alert').waitFor()
  await photograph(anna.page, 'token-wrong')
  await anna.signInWithToken(token)
  await anna.allow('Desk agent', { endpoint: '' })
  await anna.heading('Connected')
  assert.ok((await callback.answer()).get('code'))
  // Signing out on the page that asks leads back to it.
  await anna.open(authorize(gateway, clientId, callback.url))
  await anna.click('Not you? Sign out')
  await anna.heading('Sign in')
  assert.match(await anna.page.getByRole('main').innerText(), /Desk agent/)
})

test('the page of a gateway whose identity provider is down', async (t) => {
  const gateway = await startGateway(t, async () => ({
    OIDC_ISSUER: `http://localhost:${await freePort()}`,
    OIDC_CLIENT_ID: 'toolgate',
  }))
  const anna = await person(t, gateway, { mayFail: ERRORS })
  await anna.open(`${gateway.url}/login`)
  await anna.click('Sign in with localhost')
  await anna.heading('You are not signed in')
  await photograph(anna.page, 'provider-down')
})
