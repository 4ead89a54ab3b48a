// Requests see the changes that were made before them, whichever gateway receives them.

import { afterEach, expect, test, vi } from 'vitest'
import { api } from '../src/api/client'
import { LastEpoch } from '../src/api/epoch'

afterEach(() => vi.unstubAllGlobals())

/** Gives these responses, and notes the epoch that each request names. */
function answering(...answers: Response[]): (string | null)[] {
  const named: (string | null)[] = []
  vi.stubGlobal('fetch', (_path: string, init: RequestInit) => {
    named.push(new Headers(init.headers).get('x-toolgate-min-epoch'))
    return Promise.resolve(answers.shift() ?? new Response('{}'))
  })
  return named
}

const changed = (epoch: string) => new Response('{}', { headers: { 'x-toolgate-epoch': epoch } })

test('every request names the highest epoch of the responses before it', async () => {
  const named = answering(new Response('{}'), changed('7'), changed('9'), changed('8'))
  await api.overview()
  await api.deleteGroup('a')
  await api.deleteGroup('b')
  await api.deleteGroup('c')
  await api.groups()
  await api.render('p', {})
  expect(named).toEqual([null, null, '7', '9', '9', '9'])
})

test('an epoch of a database that was replaced is forgotten', async () => {
  const headers = { 'x-error-code': 'unknown_epoch', 'retry-after': '1' }
  const refused = new Response('{"error":"not yet"}', { status: 503, headers })
  const named = answering(changed('20'), refused, new Response('{}'), changed('3'))
  await api.deleteGroup('a')
  await api.groups()
  await api.deleteGroup('b')
  await api.groups()
  expect(named.slice(1)).toEqual(['20', null, null, '3'])
})

test('other errors are not sent again', async () => {
  const named = answering(new Response('{"error":"full"}', { status: 503 }))
  await expect(api.groups()).rejects.toThrow('full')
  expect(named).toHaveLength(1)
})

test('an old epoch is not named', () => {
  let now = 1000
  const last = new LastEpoch(() => now)
  last.note(5)
  last.note(Number('soon'))
  now += 9_999
  expect(last.get()).toBe(5)
  now += 1
  expect(last.get()).toBeUndefined()
  last.note(4)
  expect(last.get()).toBe(4)
  now -= 1
  expect(last.get()).toBeUndefined()
})
