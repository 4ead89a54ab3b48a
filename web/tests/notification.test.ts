// How notifications of a running tool are shown.

import { expect, test } from 'vitest'
import { told } from '../src/logic/notification'

test('progress, log messages and others have their own form', () => {
  const progress = { progress: 2, total: 3, message: 'step 2' }
  expect(told({ method: 'notifications/progress', params: progress })).toEqual({
    label: 'progress',
    tone: 'plain',
    text: '2/3, step 2',
  })
  expect(told({ method: 'notifications/progress', params: { progress: 0.5 } }).text).toBe('0.5')
  const log = (level: string, data: unknown) => told({ method: 'notifications/message', params: { level, data } })
  expect(log('warning', 'careful')).toEqual({ label: 'warning', tone: 'warn', text: 'careful' })
  expect(log('critical', { a: 1 })).toEqual({ label: 'critical', tone: 'bad', text: '{"a":1}' })
  expect(told({ method: 'notifications/message', params: { level: 'info', logger: 'db', data: 'x' } }).text).toBe(
    'db: x',
  )
  expect(told({ method: 'notifications/x/y', params: { a: 1 } }).text).toBe('x/y {"a":1}')
  expect(told({ method: 'odd', params: 7 })).toEqual({ label: 'other', tone: 'plain', text: 'odd 7' })
})
