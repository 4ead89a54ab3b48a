// What every JavaScript client with capabilities does at a server of its era: list, call, subscribe, see its own tools
// change, and answer elicitation, sampling and roots. An agent is a connected client: `tools()`, `call(name, input)`,
// `prompt(name)`, `watch(uri)`, which returns a function that ends it, `notices`, to which it adds what it is notified
// of, and `questions`, which keeps and answers what it is asked.

import assert from 'node:assert/strict'
import { setTimeout as pause } from 'node:timers/promises'

export const NOTE = 'note://one'
export const ROOT = 'file:///harbour'
export const ANSWER = 'forty-two'
export const NAME = 'Ada'
const DOCUMENT = 'demo://resource/static/document/features.md'
// Long timeouts, for a busy machine.
const UNTIL_NOTICED = 20_000
const UNTIL_DONE = 90_000

export const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } }
const SAMPLED = { role: 'assistant', model: 'none', content: { type: 'text', text: ANSWER } }
const ROOTS = { roots: [{ uri: ROOT, name: 'harbour' }] }

/** Answers what a client is asked, and keeps the parameters of the questions and the messages of progress. */
export class Questions {
  asked = []
  progressed = []
  declines = false

  answer(method, params) {
    if (method === 'roots/list') return ROOTS
    this.asked.push(params)
    if (method === 'sampling/createMessage') return SAMPLED
    if (this.declines) return { action: 'decline' }
    return params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: NAME } }
  }

  clear() {
    this.asked.length = 0
    this.progressed.length = 0
  }
}

/** The notifications that a client got, and those that wait for one. */
export class Notices {
  #seen = new Set()
  #waiting = []

  add(what) {
    this.#seen.add(what)
    for (const look of this.#waiting.splice(0)) look()
  }

  /** Waits for a notification, and forgets those that came until then. */
  async wait(what) {
    const deadline = Date.now() + UNTIL_NOTICED
    while (!this.#seen.has(what)) {
      assert.ok(Date.now() < deadline, `no notification: ${what}`)
      const timeout = new Promise((resolve) => setTimeout(resolve, deadline - Date.now()).unref())
      await Promise.race([new Promise((resolve) => this.#waiting.push(resolve)), timeout])
    }
    this.#seen.clear()
  }
}

/** The text of a result. */
export function textOf(result) {
  assert.ok(!result.isError, JSON.stringify(result))
  return result.content.map(({ text }) => text ?? '').join('')
}

async function lists(agent, wanted) {
  const names = await agent.tools()
  const missing = wanted.filter((name) => !names.includes(name))
  assert.ok(missing.length === 0, `not among ${names.length} tools: ${missing.join(', ')}`)
}

async function workshop(agent, other) {
  await lists(agent, ['say', 'touch', 'learn', 'ask', 'sample', 'roots'])
  // Without sessions the tool of the previous visit may be listed until the gateway has read the list again.
  const deadline = Date.now() + UNTIL_NOTICED
  while ((await agent.tools()).includes('learned')) {
    assert.ok(Date.now() < deadline, 'a tool that was removed is listed')
    await pause(50)
  }
  assert.equal(await agent.call('say', { text: 'h\u00e9 \u{1f600}' }), 'h\u00e9 \u{1f600}')
  const unwatch = await agent.watch(NOTE)
  await agent.call('touch')
  await agent.notices.wait(`updated ${NOTE}`)
  await agent.call('learn')
  await agent.notices.wait('tools')
  assert.ok((await agent.tools()).includes('learned'), 'the tool that its own call added is not listed')
  assert.equal(await agent.call('learned'), 'learned')
  if (other) assert.ok(!(await other.tools()).includes('learned'), 'another session sees the tool of this one')
  await agent.call('forget')
  await agent.notices.wait('tools')
  assert.ok(!(await agent.tools()).includes('learned'), 'the removed tool is still listed')
  await unwatch()
  assert.deepEqual(JSON.parse(await agent.call('ask')).content, { name: NAME })
  assert.match(await agent.call('sample'), new RegExp(ANSWER))
  assert.ok((await agent.call('roots')).includes(ROOT))
}

async function everything(agent) {
  await lists(agent, ['trigger-elicitation-request', 'trigger-sampling-request', 'get-roots-list'])
  assert.equal(await agent.call('echo', { message: 'h\u00e9 \u{1f600}' }), 'Echo: h\u00e9 \u{1f600}')
  const unwatch = await agent.watch(DOCUMENT)
  await agent.call('toggle-subscriber-updates')
  await agent.notices.wait(`updated ${DOCUMENT}`)
  await agent.call('toggle-subscriber-updates')
  await unwatch()
  assert.match(await agent.call('trigger-elicitation-request'), new RegExp(NAME))
  assert.match(await agent.call('trigger-sampling-request', { prompt: 'What?', maxTokens: 10 }), new RegExp(ANSWER))
  // It asks for the roots when the session begins and not during the call, so there are none.
  assert.match(await agent.call('get-roots-list'), /roots/)
}

async function one(name, url, connect, modern) {
  const agents = []
  const open = async () => {
    agents.push(await connect(url))
    return agents.at(-1)
  }
  try {
    const agent = await open()
    if (name.startsWith('everything')) await everything(agent)
    else await workshop(agent, name.endsWith('stateful') && !modern ? await open() : undefined)
  } finally {
    await Promise.all(agents.map((agent) => agent.close()))
  }
}

/**
 * Uses the servers of the era at each of their addresses. Legacy sessions are used at once. Without sessions all
 * addresses of a server share what it learned, so modern clients use one after the other.
 */
export async function visit(title, connect, { modern = false } = {}) {
  // server-everything speaks the legacy era only.
  const isOfEra = ([name]) => !(modern && name.startsWith('everything'))
  const chosen = Object.entries(JSON.parse(process.env.ADDRESSES || '{}')).filter(isOfEra)
  if (chosen.length === 0) return
  const go = async ([name, url]) => {
    try {
      await within(one(name, url, connect, modern))
    } catch (error) {
      return [name, error]
    }
  }
  const outcomes = []
  if (modern) for (const entry of chosen) outcomes.push(await go(entry))
  else outcomes.push(...(await Promise.all(chosen.map(go))))
  report(title, outcomes)
}

/** Fails if a visit takes too long. */
export function within(visit) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error('not through in time')), UNTIL_DONE).unref()
  })
  return Promise.race([visit, late])
}

/** Prints the outcomes: nothing for a visit that went well, else its name and its error. */
export function report(title, outcomes) {
  const failures = outcomes.filter(Boolean)
  for (const [name, error] of failures) {
    process.exitCode = 1
    const message = error.message.replace(/\s+/g, ' ').slice(0, 500)
    console.log(`    FAILED: ${title}, ${name}: ${message}${place(error)}`)
  }
  console.log(`  ${title}: all well in ${outcomes.length - failures.length} of ${outcomes.length} visits`)
}

function place(error) {
  const [line] = error.stack?.match(/(tour|pairs)\.mjs:\d+/) ?? []
  return line ? ` at ${line}` : ''
}
