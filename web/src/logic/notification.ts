// How a notification of a running tool is shown: as progress, as a log message, or by its method.

import type { Notification } from '../api/invocation'
import { isObject } from './schema'

export interface Told {
  label: string
  tone: 'bad' | 'warn' | 'plain'
  text: string
}

const BAD = ['error', 'critical', 'alert', 'emergency']

export function told({ method, params }: Notification): Told {
  const given = isObject(params) ? params : {}
  if (method === 'notifications/progress') {
    const { progress, total, message } = given
    const steps = total === undefined ? shown(progress) : `${shown(progress)}/${shown(total)}`
    return { label: 'progress', tone: 'plain', text: [steps, shown(message)].filter(Boolean).join(', ') }
  }
  if (method === 'notifications/message') {
    const level = shown(given.level) || 'log'
    const tone = BAD.includes(level) ? 'bad' : level === 'warning' ? 'warn' : 'plain'
    const text = [shown(given.logger), shown(given.data)].filter(Boolean).join(': ')
    return { label: level, tone, text }
  }
  const name = method.replace(/^notifications\//, '')
  return { label: 'other', tone: 'plain', text: params === undefined ? name : `${name} ${shown(params)}` }
}

function shown(value: unknown): string {
  if (value === undefined) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
