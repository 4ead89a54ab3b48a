// The limits of the gateway: how full each one is, and which of them refused something.

import type { Limit } from '../api/client'
import { count, size } from './words'

/** A limit on something that is held for a while, such as connections. */
export interface Held extends Limit {
  used: number
  limit: number
}

export function isHeld(one: Limit): one is Held {
  return typeof one.used === 'number' && typeof one.limit === 'number'
}

/** Limits that are not held: those that refused something, most often first, and the others. */
export function passing(limits: Limit[]): { refusing: Limit[]; quiet: Limit[] } {
  const others = limits.filter((one) => !isHeld(one))
  const refusing = others.filter((one) => one.refusals > 0).sort((one, other) => other.refusals - one.refusals)
  return { refusing, quiet: others.filter((one) => one.refusals === 0) }
}

/** From 0 to 100. What is used at all is visible. */
export function percent({ used, limit }: Held): number {
  return used <= 0 ? 0 : Math.min(100, Math.max(1, (100 * used) / Math.max(limit, 1)))
}

export type Fullness = 'free' | 'nearly full' | 'full'

export function fullness({ used, limit }: Held): Fullness {
  if (used >= limit) return 'full'
  return used >= limit * 0.8 ? 'nearly full' : 'free'
}

/** A number of the limit, with its unit. */
export function amount(number: number, { unit }: Limit): string {
  if (unit === 'bytes') return size(number).replace('.0 ', ' ')
  return unit === 'seconds' ? `${number.toLocaleString('en')} s` : number.toLocaleString('en')
}

export function refused(number: number): string {
  return number === 0 ? 'nothing refused' : `refused ${count(number, 'time')}`
}
