// What every JavaScript client does at servers of each era: it answers what the tools of `asker.py`, `asker_1.py` and
// `server-everything` ask. The runner writes all addresses into `PAIRS`, each with its servers.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { ANSWER, NAME, ROOT, report, within } from './tour.mjs'

const MISSING_CAPABILITY = -32021
const URL_REQUIRED = -32042
const SIGN_IN = 'https://example.com/sign-in'

/**
 * Visits all places with one server at once, and then those with all servers: a server's process may be shared, and what
 * it asks could then belong to either of two calls. `connect(url, { bare })` returns an agent.
 */
export async function cross(title, connect, { modern = false } = {}) {
  const places = JSON.parse(process.env.PAIRS || '[]').filter((place) => isReachable(place, modern))
  if (places.length === 0) return
  const [alone, shared] = [
    places.filter(({ servers: [, other] }) => !other),
    places.filter(({ servers }) => servers[1]),
  ]
  const visited = await Promise.all(alone.map((place) => use(place, connect, modern)))
  for (const place of shared) visited.push(await use(place, connect, modern))
  report(title, visited.flat())
}

/** Without the gateway a client needs a server of its own era. */
const isReachable = ({ direct, servers: [{ era }] }, modern) =>
  !direct || era === 'both' || era === (modern ? 'modern' : 'legacy')

/** Uses the servers of a place one after the other: in one session with all capabilities, and in one with none. */
async function use({ url, direct, servers }, connect, modern) {
  const outcomes = []
  const session = async (how, chosen, tourOf) => {
    const agent = await within(connect(url, how))
    for (const server of chosen) {
      try {
        agent.questions.declines = false
        await within(tourOf(server.kind)(agent, callerOf(agent, server.prefix), modern, server))
        outcomes.push(undefined)
      } catch (error) {
        outcomes.push([`${server.name} at ${url}`, error])
      }
    }
    await agent.close()
  }
  // Without the gateway the server of SDK 1.x does not look at the capabilities.
  const checked = servers.filter(({ kind }) => kind === 'asker' && !direct)
  try {
    await session({}, servers, (kind) => TOURS[kind])
    await session({ bare: true }, checked, () => undeclared)
  } catch (error) {
    outcomes.push([url, error])
  }
  return outcomes
}

/** Calls the tools of one server, and forgets before each call what the agent was asked until then. */
const callerOf =
  (agent, prefix) =>
  async (name, input = {}) => {
    agent.questions.clear()
    return agent.call(prefix + name, input)
  }

async function asker({ questions, prompt }, call, modern, { prefix }) {
  assert.deepEqual(JSON.parse(await call('ask')), { action: 'accept', content: { name: NAME } })
  assert.equal(questions.asked.length, 1)
  const [form] = questions.asked
  assert.equal(form.message, 'Who are you?')
  assert.equal(form.requestedSchema.properties.name.description, 'Your full name')
  assert.equal(form.requestedSchema.properties.name.minLength, 2)
  assert.deepEqual(form.requestedSchema.required, ['name'])
  // The modern SDK also reports each round of questions as progress.
  const sent = questions.progressed.filter((message) => !message?.startsWith('Fulfilling input'))
  assert.deepEqual(sent, ['before', 'after'])

  questions.declines = true
  assert.deepEqual(JSON.parse(await call('ask')), { action: 'decline', content: null })
  questions.declines = false

  assert.deepEqual(JSON.parse(await call('link')), { action: 'accept' })
  assert.equal(questions.asked.length, 1)
  const [link] = questions.asked
  assert.deepEqual([link.mode, link.message, link.url], ['url', 'Please sign in.', SIGN_IN])
  assert.ok(modern || link.elicitationId, JSON.stringify(link))

  assert.equal(await call('sample'), ANSWER)
  assert.equal(questions.asked.length, 1)
  const [request] = questions.asked
  assert.deepEqual([said(request), request.maxTokens, request.systemPrompt], ['What is six by seven?', 10, 'Be brief.'])

  assert.deepEqual(JSON.parse(await call('roots')), [ROOT])

  questions.clear()
  assert.equal(await prompt(`${prefix}greet`), `Good morning, ${NAME}!`)
  assert.deepEqual(questions.asked.map(said), ['Whom shall I greet?'])

  assert.equal(await call('twice'), `${NAME}: ${ANSWER}`)
  assert.deepEqual(questions.asked.map(said), ['Who are you?', `A poem for ${NAME}`])
  assert.equal(await call('together'), `${NAME}: ${ANSWER}`)
  assert.deepEqual(questions.asked.map(said).sort(), ['What is six by seven?', 'Who are you?'])
}

/** Without capabilities nothing is asked. */
async function undeclared({ questions }, call, modern, { era }) {
  for (const [name, capability] of [
    ['ask', /elicit/i],
    ['sample', /sampl/i],
  ]) {
    const error = await refusal(call(name))
    assert.ok(capability.test(error.message), error.message)
    if (modern) assert.equal(error.code, MISSING_CAPABILITY, error.message)
    assert.deepEqual(questions.asked, [])
  }
  if (modern && era === 'legacy') assert.deepEqual(JSON.parse(await call('roots')), [])
}

/** `server-everything` asks for the roots when a session begins, not during a call. */
async function everything({ questions }, call, modern) {
  assert.match(await call('trigger-elicitation-request'), new RegExp(NAME))
  assert.equal(questions.asked[0].requestedSchema.properties.name.type, 'string')
  questions.declines = true
  assert.match(await call('trigger-elicitation-request'), /declined/)
  questions.declines = false
  assert.match(await call('trigger-sampling-request', { prompt: 'What?', maxTokens: 10 }), new RegExp(ANSWER))
  assert.match(said(questions.asked[0]), /What\?/)

  const visit = { url: SIGN_IN, message: 'Please sign in.' }
  assert.match(await call('trigger-url-elicitation', visit), /accept/)
  assert.deepEqual(
    questions.asked.map(({ url }) => url),
    [SIGN_IN],
  )
  // The server refuses the call until the user has opened another address. It knows the call again by its id.
  const refused = { ...visit, errorPath: true, elicitationId: randomUUID() }
  if (modern) {
    assert.match(await call('trigger-url-elicitation', refused), /accept/)
    const [first, second] = questions.asked.map(({ url }) => url)
    assert.ok(first !== SIGN_IN && second === SIGN_IN, `${first}, ${second}`)
  } else {
    assert.equal((await refusal(call('trigger-url-elicitation', refused))).code, URL_REQUIRED)
  }
}

async function refusal(calling) {
  const text = await calling.catch((error) => error)
  assert.ok(text instanceof Error, `not refused: ${text}`)
  return text
}

/** The text of a question: of an elicitation or of the first message for a model. */
function said({ message, messages }) {
  return message ?? [messages[0].content].flat()[0].text
}

const TOURS = { asker, everything }
