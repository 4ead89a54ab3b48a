// Recorded calls: the filters of the list as they are in the address, and the list itself, newest first.

import type { Call } from '../api/client'

export const OUTCOMES = ['ok', 'tool_error', 'upstream_error', 'timed_out', 'cancelled', 'denied', 'limited'] as const
export const DOORS = ['mcp', 'sse', 'rest', 'dashboard'] as const

/** The times until now that can be chosen, in seconds. */
export const RANGES: Record<string, number> = { '15m': 900, '1h': 3600, '24h': 86_400, '7d': 604_800, '30d': 2_592_000 }

/** The filters, as in the address. Empty texts fit everything. */
export interface CallFilters {
  q: string
  server: string
  name: string
  principal: string
  outcome: string
  via: string
  /** A key of `RANGES`. */
  range: string
  /** RFC 3339; both only without `range`. */
  since: string
  until: string
}

const KEYS: (keyof CallFilters)[] = ['q', 'server', 'name', 'principal', 'outcome', 'via', 'range', 'since', 'until']

export function readFilters(query: URLSearchParams): CallFilters {
  const given = KEYS.map((key) => [key, query.get(key) ?? ''])
  const filters = Object.fromEntries(given) as Record<keyof CallFilters, string>
  if (!(filters.range in RANGES)) filters.range = ''
  return filters.range === '' ? filters : { ...filters, since: '', until: '' }
}

/** The filters that are set; an empty object for none. */
export function setFilters(filters: CallFilters): Partial<CallFilters> {
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== ''))
}

/** The parameters of a request for the calls that fit. */
export function toParameters({ range, ...others }: CallFilters, now: number): URLSearchParams {
  const seconds = RANGES[range]
  const since = seconds === undefined ? others.since : new Date(now - seconds * 1000).toISOString()
  const all = Object.entries({ ...others, since })
  return new URLSearchParams(all.filter(([, value]) => value !== ''))
}

/** The parameters of a request for a page of such calls: the newest, or those before a call. */
export function pageParameters(parameters: URLSearchParams, limit: number, before?: string): URLSearchParams {
  const more = { limit: String(limit), ...(before === undefined ? {} : { before }) }
  return new URLSearchParams([...parameters, ...Object.entries(more)])
}

/** The calls that are not in the list. */
export function notIn(list: Call[], calls: Call[]): Call[] {
  const known = new Set(list.map((call) => call.id))
  return calls.filter((call) => !known.has(call.id))
}

/** The calls of both lists, newest first. A call that is in both is the one of `more`, which was read later. */
export function merged(list: Call[], more: Call[]): Call[] {
  if (more.length === 0) return list
  const added = new Map(more.map((call) => [call.id, call]))
  const kept = list.filter((call) => !added.has(call.id))
  const sorted = [...added.values()].sort(byId)
  // Usually all new calls are newer than the known ones, or all are older.
  const [newest, first] = [kept[0], sorted[0]]
  if (!newest || !first) return kept.length > 0 ? kept : sorted
  const [oldest, last] = [kept.at(-1), sorted.at(-1)]
  if (last && last.id > newest.id) return [...sorted, ...kept]
  if (oldest && first.id < oldest.id) return [...kept, ...sorted]
  return [...kept, ...sorted].sort(byId)
}

function byId(one: Call, other: Call): number {
  return one.id < other.id ? 1 : one.id > other.id ? -1 : 0
}

/** The outcome in words: `tool error`. */
export function outcomeWords(outcome: string): string {
  return outcome.replaceAll('_', ' ')
}

/** What is wrong: nothing, the caller's own doing or a limit, or a failure. */
export function severity(outcome: string): 'good' | 'mild' | 'bad' {
  if (outcome === 'ok') return 'good'
  return outcome === 'cancelled' || outcome === 'denied' || outcome === 'limited' ? 'mild' : 'bad'
}

/** What a call is called: the full name of a tool or prompt, or the URI of a resource. */
export function fullName({ server, name, method }: Pick<Call, 'server' | 'name' | 'method'>): string {
  return server && method !== 'resources/read' ? `${server}__${name}` : name
}

/** The noun for what was called. */
export function nounOf(method: string): 'tool' | 'prompt' | 'resource' {
  if (method === 'prompts/get') return 'prompt'
  return method === 'resources/read' ? 'resource' : 'tool'
}

/** Who called: the user or client, and the agent with its version. Empty if nothing is known of the caller. */
export function callerOf({ agent, principal }: Pick<Call, 'agent' | 'principal'>): string {
  if (principal.kind === 'anonymous') return agent ?? ''
  return agent ? `${principal.name} (${agent})` : principal.name
}

/** The local time that an `<input type="datetime-local">` shows, from RFC 3339. Empty if it is none. */
export function toLocal(time: string): string {
  const then = new Date(time)
  if (time === '' || Number.isNaN(then.getTime())) return ''
  const shifted = new Date(then.getTime() - then.getTimezoneOffset() * 60_000)
  return shifted.toISOString().slice(0, 19)
}

/** The reverse. */
export function fromLocal(value: string): string {
  const then = new Date(value)
  return value === '' || Number.isNaN(then.getTime()) ? '' : then.toISOString()
}
