// Recorded calls: filters in the address, the list, the time line, explanations, and the geometry of charts.

import { expect, test } from 'vitest'
import type { Call } from '../src/api/client'
import {
  callerOf,
  fromLocal,
  fullName,
  merged,
  notIn,
  pageParameters,
  readFilters,
  setFilters,
  severity,
  toLocal,
  toParameters,
} from '../src/logic/calls'
import { isAlone, linePath, niceTop, short, tickTime } from '../src/logic/chart'
import { exact, explain } from '../src/logic/explanation'
import { queryText } from '../src/logic/query'
import { timeLine } from '../src/logic/timeline'

const CALL: Call = {
  id: '0001',
  at: '2026-01-31T12:00:00.000Z',
  principal: { kind: 'anonymous', name: 'anonymous' },
  agent: 'Cursor 1.2',
  via: 'mcp',
  endpoint: '/mcp',
  method: 'tools/call',
  server: 'github',
  name: 'create_issue',
  outcome: 'ok',
  error: null,
  duration_ms: 100,
  upstream_ms: 80,
  queue_ms: 15,
  input_ms: 0,
  gateway_ms: 5,
  request_bytes: 10,
  response_bytes: 20,
  attempts: 1,
  client_era: 'legacy',
  server_era: 'legacy',
  trace_id: null,
  rounds: 0,
  marks: [],
}
const call = (changes: Partial<Call>): Call => ({ ...CALL, ...changes })

test('filters are read from the address and become parameters', () => {
  const filters = readFilters(new URLSearchParams('server=s&outcome=denied&range=1h&since=x&other=y'))
  expect(setFilters(filters)).toEqual({ server: 's', outcome: 'denied', range: '1h' })
  const now = Date.parse('2026-01-31T12:00:00Z')
  expect(Object.fromEntries(toParameters(filters, now))).toEqual({
    server: 's',
    outcome: 'denied',
    since: '2026-01-31T11:00:00.000Z',
  })
  const times = readFilters(new URLSearchParams('range=2h&since=2026-01-01T00:00:00Z&q=a%26b'))
  expect(String(toParameters(times, now))).toBe('q=a%26b&since=2026-01-01T00%3A00%3A00Z')
  expect(setFilters(readFilters(new URLSearchParams('')))).toEqual({})
  expect(String(pageParameters(new URLSearchParams('q=a'), 100))).toBe('q=a&limit=100')
  expect(String(pageParameters(new URLSearchParams(), 5, '07'))).toBe('limit=5&before=07')
  expect([queryText({ q: '', server: 'a b' }), queryText({ q: '' })]).toEqual(['?server=a+b', ''])
})

test('times are entered in the time zone of the browser', () => {
  for (const time of ['2026-01-31T12:00:05.000Z', '2026-07-01T00:00:00.000Z'])
    expect(fromLocal(toLocal(time))).toBe(time)
  expect([toLocal(''), toLocal('x'), fromLocal('')]).toEqual(['', '', ''])
})

test('new calls are put where they belong, and a repeated one replaces the earlier', () => {
  const list = ['5', '3', '1'].map((id) => call({ id }))
  const ids = (calls: Call[]) => calls.map((one) => one.id).join('')
  expect(ids(merged(list, []))).toBe('531')
  expect(ids(notIn(list, [call({ id: '3' }), call({ id: '2' })]))).toBe('2')
  expect(ids(merged([], list.toReversed()))).toBe('531')
  expect(ids(merged(list, [call({ id: '6' }), call({ id: '7' })]))).toBe('76531')
  expect(ids(merged(list, [call({ id: '0' })]))).toBe('5310')
  expect(ids(merged(list, [call({ id: '4' }), call({ id: '8' })]))).toBe('85431')
  const replaced = merged(list, [call({ id: '3', outcome: 'denied' })])
  expect(replaced.map((one) => one.outcome)).toEqual(['ok', 'denied', 'ok'])
})

test('names and callers are shown as people know them', () => {
  expect(fullName(CALL)).toBe('github__create_issue')
  expect(fullName(call({ method: 'resources/read', name: 'file:///a' }))).toBe('file:///a')
  expect(fullName(call({ server: null, name: 'nothing' }))).toBe('nothing')
  expect(callerOf(CALL)).toBe('Cursor 1.2')
  expect(callerOf(call({ agent: null }))).toBe('')
  expect(callerOf(call({ principal: { kind: 'client', name: 'bot' } }))).toBe('bot (Cursor 1.2)')
  expect([severity('ok'), severity('denied'), severity('tool_error')]).toEqual(['good', 'mild', 'bad'])
})

test('a time line has both hops on one scale', () => {
  const line = timeLine(call({ sent_ms: 18, first_byte_ms: 90 }))
  expect(line.isApproximate).toBe(false)
  expect(line.segments).toEqual([
    { hop: 'client', what: 'gateway', from: 0, to: 3 },
    { hop: 'client', what: 'waiting', from: 3, to: 18 },
    { hop: 'client', what: 'gateway', from: 98, to: 100 },
    { hop: 'server', what: 'server', from: 18, to: 90 },
    { hop: 'server', what: 'answer', from: 90, to: 98 },
  ])
  expect(line.moments.map(({ name, at }) => `${name} ${at}`)).toEqual([
    'Arrived 0',
    'Waited 3',
    'Sent 18',
    'First byte 90',
    'Done 100',
  ])
})

test('a time line without offsets is a guess, and one of a call that was not sent has one hop', () => {
  const guessed = timeLine(CALL)
  expect(guessed.isApproximate).toBe(true)
  expect(guessed.moments.map(({ name }) => name)).toEqual(['Arrived', 'Waited', 'Sent', 'Done'])
  const denied = timeLine(call({ duration_ms: 0.4, upstream_ms: 0, queue_ms: 0, gateway_ms: 0.4, sent_ms: null }))
  expect(denied.segments).toEqual([{ hop: 'client', what: 'gateway', from: 0, to: 0.4 }])
  expect(denied.moments.map(({ name }) => name)).toEqual(['Arrived', 'Done'])
  expect(timeLine(call({ duration_ms: 0, upstream_ms: 0, queue_ms: 0, gateway_ms: 0 })).length).toBeGreaterThan(0)
})

test('marks are drawn, and waiting for a person is a part of its own', () => {
  const marks = [
    { at_ms: 5, kind: 'progress' },
    { at_ms: 10, kind: 'input' },
    { at_ms: 60, kind: 'answer' },
    { at_ms: 61, kind: 'unheard of' },
    { at_ms: 500, kind: 'notice' },
  ]
  const line = timeLine(call({ marks, input_ms: 50, upstream_ms: 45, queue_ms: 0, sent_ms: 2 }))
  expect(line.marks).toEqual([
    { what: 'progress', at: 5 },
    { what: 'asked', at: 10 },
    { what: 'answered', at: 60 },
    { what: 'progress', at: 100 },
  ])
  expect(line.segments).toContainEqual({ hop: 'client', what: 'input', from: 10, to: 60 })
  const open = timeLine(call({ marks: [{ at_ms: 10, kind: 'input' }], input_ms: 30 }))
  expect(open.segments).toContainEqual({ hop: 'client', what: 'input', from: 10, to: 40 })
})

test('what took most of the time is said', () => {
  const told = (changes: Partial<Call>) => explain(call(changes)).text.join(' ')
  expect(explain(CALL).title).toBe('Where did the time go?')
  expect(told({})).toBe(
    'The server github took 80 ms, 80 % of 100 ms. It waited 15 ms for a free slot of the server github.',
  )
  const slow = call({ duration_ms: 4000, upstream_ms: 100, queue_ms: 3850, gateway_ms: 50 })
  expect(explain(slow).title).toBe('Why was it slow?')
  expect(explain(slow).text[0]).toBe('It waited 3.85 s for a free slot of the server github, 96 % of 4.00 s.')
  expect(explain(slow).advice).toContain('concurrent calls')
  expect(told({ sent_ms: 16, first_byte_ms: 40 })).toContain('(24 ms until its first byte)')
  expect(told({ upstream_ms: 10, input_ms: 85, queue_ms: 0, rounds: 2 })).toContain('the answers to 2 questions')
  expect(told({ attempts: 3 })).toContain('It was sent 3 times, since earlier attempts got no answer.')
  expect(told({ upstream_ms: 0, queue_ms: 0, gateway_ms: 100 })).toBe(
    'The gateway itself took 100 ms, 100 % of 100 ms.',
  )
})

test('each outcome is explained, with what to do', () => {
  const denied = explain(call({ outcome: 'denied', error: 'tool "x" is not available', upstream_ms: 0 }))
  expect(denied.title).toBe('Why was it denied?')
  expect(denied.text[0]).toBe('Tool "x" is not available.')
  expect(denied.next).toMatchObject({ page: 'tools', rest: ['github__create_issue'] })
  const unknown = call({ outcome: 'denied', server: null, name: 'github__nothing' })
  expect(explain(unknown).next).toMatchObject({ page: 'tools', rest: ['github__nothing'] })
  expect(explain(call({ outcome: 'denied', server: null, name: 'nothing' })).next).toBeUndefined()
  expect(explain(call({ outcome: 'limited' })).next).toMatchObject({ page: 'system' })
  expect(explain(call({ outcome: 'timed_out', duration_ms: 30_000 })).text[0]).toBe(
    'The server github did not finish within 30.0 s.',
  )
  expect(explain(call({ outcome: 'tool_error' })).advice).toContain('wrong argument')
  expect(explain(call({ outcome: 'cancelled' })).advice).toBe('The server github was told to stop.')
  expect(explain(call({ outcome: 'upstream_error', detail: 'the process ended' })).text[0]).toBe('The process ended.')
})

test('times and numbers have the digits that they need', () => {
  expect([0, 0.123, 1.26, 42.4, 150.4, 2500].map(exact)).toEqual([
    '0 ms',
    '0.12 ms',
    '1.3 ms',
    '42 ms',
    '150 ms',
    '2.50 s',
  ])
  expect([0, 0.041, 0.5, 1, 1.25, 12.6, 5600].map(short)).toEqual(['0', '0.04', '0.5', '1', '1.3', '13', '5,600'])
})

test('a scale ends at a round number, and a line has gaps', () => {
  expect([0, 0.03, 1, 3, 7, 12, 101].map(niceTop)).toEqual([1, 0.05, 1, 5, 10, 20, 200])
  const at = (value: number) => value * 10
  expect(linePath([1, 2, undefined, 3, undefined], at, at)).toBe('M0.0 10.0L10.0 20.0M30.0 30.0')
  expect(linePath([], at, at)).toBe('')
  expect([2, undefined, 3, 4, undefined, 5].flatMap((_, index, all) => (isAlone(all, index) ? [index] : []))).toEqual([
    0, 5,
  ])
  expect([0, 0.5, 5, 1500, 5000, 90_000].map(tickTime)).toEqual(['0', '0.5 ms', '5 ms', '1.5 s', '5 s', '1.5 min'])
})
