// Questions of a tool while it runs: every kind is shown in the place of the result, answered, and gone.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startFake, startGateway } from './gateway.mjs'

const dot = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

const questions = {
  form: {
    method: 'elicitation/create',
    params: {
      message: 'Where should it be delivered?\nOnly for this parcel.',
      requestedSchema: {
        type: 'object',
        properties: {
          // The fake server sorts the properties by name; this one is the first.
          address: { type: 'string', format: 'email', title: 'Email address', description: 'For the receipt' },
          parcels: { type: 'integer', title: 'Parcels', minimum: 1, default: 2 },
          day: { type: 'string', format: 'date', title: 'Delivery day' },
          speed: {
            type: 'string',
            title: 'Speed',
            oneOf: [
              { const: 's', title: 'Slow and cheap' },
              { const: 'f', title: 'Fast' },
            ],
          },
          extras: {
            type: 'array',
            title: 'Extras',
            items: {
              anyOf: [
                { const: 'g', title: 'Gift wrap' },
                { const: 'i', title: 'Insurance' },
              ],
            },
            default: ['i'],
          },
          agree: { type: 'boolean', title: 'I agree' },
        },
        required: ['address', 'agree'],
      },
    },
  },
  page: {
    method: 'elicitation/create',
    params: {
      mode: 'url',
      message: 'Sign in to connect your account.',
      url: 'https://trusted.example@accounts.example:8443/authorize?client_id=0123456789&state=abcdefghijklmnopqrstuvwxyz',
      elicitationId: 'e-1',
    },
  },
  sampling: {
    method: 'sampling/createMessage',
    params: {
      systemPrompt: 'You are a careful translator.',
      maxTokens: 100,
      messages: [
        { role: 'user', content: { type: 'text', text: 'Translate: Guten Morgen' } },
        { role: 'user', content: { type: 'image', mimeType: 'image/png', data: dot } },
      ],
    },
  },
  roots: { method: 'roots/list', params: {} },
}

/** Opens the page of a tool that asks one question, or rounds of them, and calls it. */
async function ask(t, gateway, question, { rounds = [[question]], ...options } = {}) {
  const visit = await open(t, gateway, { hash: '#/tools/s__ask', ...options })
  await visit.page.getByRole('button', { name: 'JSON', exact: true }).click()
  await visit.page.getByLabel('Arguments as JSON').fill(JSON.stringify({ rounds }))
  await visit.page.getByRole('button', { name: 'Run', exact: true }).click()
  await visit.page.getByText('#1 Waiting for').waitFor()
  return visit
}

async function start(t) {
  const gateway = await startGateway(t)
  const fake = await startFake(t)
  await gateway.register({ name: 's', transport: 'streamable_http', url: fake.url })
  return gateway
}

/** The answers that the server received, in rounds: the text of its result. */
async function allReceived(page) {
  await page.getByText('#1 Succeeded').waitFor()
  await page.getByRole('tab', { name: 'Response' }).click()
  const response = JSON.parse(await page.getByLabel('Raw response', { exact: true }).textContent())
  return JSON.parse(response.content[0].text)
}

async function received(page) {
  return (await allReceived(page))[0][0]
}

test('a form is filled in by keyboard, checked, and sent', async (t) => {
  const visit = await ask(t, await start(t), questions.form)
  const { page } = visit
  const question = page.getByRole('region', { name: 's asks' })
  await question.getByText('Where should it be delivered?').waitFor()
  const email = question.getByLabel(/^Email address/)
  await email.and(page.locator(':focus')).waitFor()
  await page.keyboard.type('someone')
  await page.keyboard.press('Enter')
  await question.getByText('Email address must be an email address').waitFor()
  await email.and(page.locator(':focus')).waitFor()
  await page.keyboard.type('@example.com')
  await question.getByLabel(/^Delivery day/).fill('2030-12-31')
  await question.getByLabel('Speed').selectOption('Fast')
  await question.getByLabel('Gift wrap').check()
  await question.getByLabel(/^I agree/).selectOption('yes')
  await question.getByRole('button', { name: 'Submit' }).press('Enter')
  await question.waitFor({ state: 'detached' })
  assert.deepEqual(await received(page), {
    action: 'accept',
    content: {
      address: 'someone@example.com',
      parcels: 2,
      day: '2030-12-31',
      speed: 'f',
      extras: ['g', 'i'],
      agree: true,
    },
  })
  assertClean(visit)
})

test('a form is declined or cancelled, and the focus comes back', async (t) => {
  const gateway = await start(t)
  for (const [button, action] of [
    ['Decline', 'decline'],
    ['Cancel', 'cancel'],
  ]) {
    const visit = await ask(t, gateway, questions.form)
    const { page } = visit
    await page.getByRole('region', { name: 's asks' }).getByRole('button', { name: button, exact: true }).click()
    await page.getByText('#1 Succeeded').waitFor()
    await page.getByRole('status').and(page.locator(':focus')).waitFor()
    assert.deepEqual(await received(page), { action })
    assertClean(visit)
  }
})

test('a page to open is a link to its real host in another tab', async (t) => {
  const visit = await ask(t, await start(t), questions.page)
  const { page } = visit
  const question = page.getByRole('region', { name: 's asks you to open a page' })
  assert.equal(await question.locator('[data-host]').textContent(), 'accounts.example:8443')
  const link = question.getByRole('link')
  assert.equal(await link.getAttribute('target'), '_blank')
  assert.match(await link.getAttribute('rel'), /\bnoopener\b/)
  assert.equal(await link.getAttribute('href'), questions.page.params.url)
  await question.getByRole('button', { name: 'Done' }).click()
  assert.deepEqual(await received(page), { action: 'accept' })
  assertClean(visit)
})

test('an address that is not of a web page is no link', async (t) => {
  const params = { ...questions.page.params, url: 'javascript:alert(1)' }
  const visit = await ask(t, await start(t), { ...questions.page, params })
  const { page } = visit
  const question = page.getByRole('region', { name: 's asks you to open a page' })
  await question.getByText('javascript:alert(1)').waitFor()
  assert.equal(await question.getByRole('link').count(), 0)
  await question.getByRole('button', { name: 'Decline' }).click()
  assert.deepEqual(await received(page), { action: 'decline' })
  assertClean(visit)
})

test('a person answers for a language model, or refuses', async (t) => {
  const gateway = await start(t)
  const visit = await ask(t, gateway, questions.sampling)
  const { page } = visit
  const question = page.getByRole('region', { name: 's asks for a response from a language model' })
  await question.getByText('You are a careful translator.').waitFor()
  await question.getByText('Translate: Guten Morgen').waitFor()
  await question.getByRole('img').waitFor()
  await question.getByLabel('Response').and(page.locator(':focus')).waitFor()
  await page.keyboard.type('Good morning')
  await page.keyboard.press('Control+Enter')
  assert.deepEqual(await received(page), {
    role: 'assistant',
    content: { type: 'text', text: 'Good morning' },
    model: 'human',
  })
  assertClean(visit)
  const other = await ask(t, gateway, questions.sampling)
  await other.page.getByRole('button', { name: 'Refuse' }).click()
  assert.equal(typeof (await received(other.page)).code, 'number', 'the server gets an error')
  assertClean(other)
})

test('folders are sent as file URIs', async (t) => {
  const visit = await ask(t, await start(t), questions.roots)
  const { page } = visit
  await page.getByLabel('Folder 1', { exact: true }).fill('docs')
  await page.getByRole('button', { name: 'Add folder' }).click()
  await page.getByLabel('Folder 2', { exact: true }).fill('/srv/my files')
  await page.getByRole('button', { name: 'Send', exact: true }).click()
  await page.getByText('Folder 1 must be an absolute path').waitFor()
  await page.getByLabel('Folder 1', { exact: true }).fill('file:///home/me')
  await page.getByRole('button', { name: 'Send', exact: true }).click()
  const sent = await received(page)
  assert.deepEqual(sent.roots, [{ uri: 'file:///home/me' }, { uri: 'file:///srv/my%20files' }])
  assertClean(visit)
})

test('a refused answer is explained beside the question, which stays', async (t) => {
  const visit = await ask(t, await start(t), questions.roots, { mayFail: ['404'] })
  const { page } = visit
  // The call that the page answers does not exist for the gateway.
  await page.route('**/api/v0/tools/invoke/*/input', (route) => {
    const url = new URL(route.request().url())
    return route.continue({ url: `${url.origin}/api/v0/tools/invoke/gone/input` })
  })
  const question = page.getByRole('region', { name: 's asks which folders' })
  await question.getByRole('button', { name: 'Refuse' }).click()
  await question.getByRole('alert').getByText('The answer was not accepted').waitFor()
  await page.unroute('**/api/v0/tools/invoke/*/input')
  await question.getByRole('button', { name: 'Refuse' }).click()
  await question.waitFor({ state: 'detached' })
  await page.getByText('#1 Succeeded').waitFor()
  assertClean(visit)
})

test('several questions are listed, each is answered by itself, and more may follow', async (t) => {
  const confirm = {
    method: 'elicitation/create',
    params: { message: 'Really?', requestedSchema: { type: 'object', properties: {} } },
  }
  const rounds = [[questions.roots, questions.page, questions.sampling], [confirm]]
  const visit = await ask(t, await start(t), undefined, { rounds })
  const { page } = visit
  await page.getByText('#1 Waiting for 3 answers').waitFor()
  const region = (name) => page.getByRole('region', { name })
  await region('s asks you to open a page').getByRole('button', { name: 'Done' }).click()
  await page.getByText('#1 Waiting for 2 answers').waitFor()
  await region('s asks for a response').getByLabel('Response').fill('Good morning')
  await region('s asks for a response').getByRole('button', { name: 'Send' }).click()
  await page.getByText('#1 Waiting for your answer').waitFor()
  await page.getByLabel('Folder 1', { exact: true }).and(page.locator(':focus')).waitFor()
  await region('s asks which folders').getByRole('button', { name: 'Send an empty list' }).click()
  await page.getByText('Really?').waitFor()
  await page.getByRole('button', { name: 'Submit' }).click()
  const [first, second] = await allReceived(page)
  assert.deepEqual(first[0].roots, [])
  assert.deepEqual(first[1], { action: 'accept' })
  assert.equal(first[2].content.text, 'Good morning')
  assert.deepEqual(second, [{ action: 'accept', content: {} }])
  assertClean(visit)
})

test('a question disappears with its call', async (t) => {
  const visit = await ask(t, await start(t), questions.form)
  const { page } = visit
  await page.getByRole('button', { name: 'Cancel call' }).click()
  await page.getByText('#1 Cancelled').waitFor()
  assert.equal(await page.locator('[data-question]').count(), 0)
  assertClean(visit)
})

for (const scheme of ['light', 'dark']) {
  test(`every kind of question is accessible and fits, ${scheme}`, async (t) => {
    const gateway = await start(t)
    for (const [kind, question] of Object.entries(questions)) {
      for (const width of [1440, 390]) {
        const name = `question-${kind}-${scheme}-${width}`
        const visit = await ask(t, gateway, question, { scheme, width, height: 900 })
        const { page } = visit
        await page.locator('[data-question]').scrollIntoViewIfNeeded()
        await picture(page, name)
        await assertAccessible(page, name)
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
        assert.ok(overflow <= 0, `${name} does not scroll sideways`)
        await page.getByRole('button', { name: 'Cancel call' }).click()
        await page.getByText('#1 Cancelled').waitFor()
        assertClean(visit)
        await visit.context.close()
      }
    }
  })
}
