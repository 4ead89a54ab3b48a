// What the form of a server holds: the registration of a new server, or the changes of a registered one.

import type { RateLimit, RegistrationInput, Server, ServerDetails } from '../api/client'
import { split } from './commandline'

/** A name with a secret value: an environment variable or a header. */
export interface Pair {
  name: string
  value: string
  /** Whether a value is stored; it stays unless another one is entered. */
  isStored?: boolean
}

/** A rate limit as typed: calls per minute, and burst size. Both empty for none. */
export interface RateDraft {
  calls: string
  burst: string
}

/** The rate limit of a tool, or of all tools that match a pattern. */
export interface ToolLimit extends RateDraft {
  tool: string
}

export interface Draft {
  isUrl: boolean
  name: string
  /** The command with its arguments, as typed in a terminal. */
  line: string
  url: string
  transport: string
  token: string
  isTokenRemoved: boolean
  pairs: Pair[]
  description: string
  cwd: string
  sessionMode: string
  /** On which of several gateways a process runs: `each` or `one`. */
  placement: string
  timeout: string
  /** The maximum of concurrent calls; empty for no limit. */
  concurrency: string
  rate: RateDraft
  toolLimits: ToolLimit[]
  clientId: string
  clientSecret: string
  scopes: string
}

export function emptyDraft(isUrl: boolean, line: string): Draft {
  return {
    isUrl,
    name: '',
    line,
    url: '',
    transport: 'streamable_http',
    token: '',
    isTokenRemoved: false,
    pairs: [],
    description: '',
    cwd: '',
    sessionMode: 'stateless',
    placement: 'each',
    timeout: '',
    concurrency: '',
    rate: { calls: '', burst: '' },
    toolLimits: [],
    clientId: '',
    clientSecret: '',
    scopes: '',
  }
}

/** A registered server. Secrets are not known here, only that they are stored. */
export function draftOf(server: Server, details: ServerDetails): Draft {
  const config = server.config_summary
  const isUrl = config.kind !== 'stdio'
  const keys = isUrl ? config.header_keys : config.env_keys
  return {
    ...emptyDraft(isUrl, config.command_line),
    name: server.name,
    url: isUrl ? config.target : '',
    transport: config.kind,
    pairs: keys.map((name) => ({ name, value: '', isStored: true })),
    description: config.description,
    cwd: details.cwd,
    sessionMode: config.session_mode,
    placement: details.placement ?? 'each',
    timeout: String(details.timeout_ms),
    concurrency: details.max_concurrency > 0 ? String(details.max_concurrency) : '',
    rate: rateDraft(details.rate_limit),
    toolLimits: Object.entries(details.tool_limits).map(([tool, limit]) => ({ tool, ...rateDraft(limit) })),
    clientId: details.oauth_client_id,
    scopes: details.oauth_scopes.join(' '),
  }
}

export function registration(draft: Draft): RegistrationInput {
  const some = <T>(value: T, given: boolean) => (given ? value : undefined)
  const filled = values(draft.pairs)
  const named = some(filled, Object.keys(filled).length > 0)
  const common = {
    name: draft.name,
    description: some(draft.description, draft.description !== ''),
    session_mode: draft.sessionMode,
    timeout_ms: some(Number(draft.timeout), draft.timeout !== ''),
    max_concurrency: some(Number(draft.concurrency), draft.concurrency !== ''),
    rate_limit: rateLimit(draft.rate) ?? undefined,
    tool_limits: some(toolLimits(draft.toolLimits), draft.toolLimits.length > 0),
  }
  if (!draft.isUrl) {
    return {
      ...common,
      transport: 'stdio',
      ...program(draft.line),
      env: named,
      cwd: some(draft.cwd, draft.cwd !== ''),
      placement: some(draft.placement, draft.placement !== 'each'),
    }
  }
  return { ...common, ...endpoint(draft) }
}

/** The settings of a server behind a URL. */
function endpoint(draft: Draft): Pick<RegistrationInput, 'transport'> & Partial<RegistrationInput> {
  const some = <T>(value: T, given: boolean) => (given ? value : undefined)
  const filled = values(draft.pairs)
  return {
    transport: draft.transport,
    url: draft.url.trim(),
    bearer_token: some(draft.token, draft.token !== ''),
    headers: some(filled, Object.keys(filled).length > 0),
    oauth_client_id: some(draft.clientId, draft.clientId !== ''),
    oauth_client_secret: some(draft.clientSecret, draft.clientSecret !== ''),
    oauth_scopes: some(listed(draft.scopes), draft.scopes.trim() !== ''),
  }
}

/** Only what differs: everything else stays, secrets too. `null` resets a key or removes an entry. */
export function changes(before: Draft, after: Draft): Record<string, unknown> {
  const changed: Record<string, unknown> = {}
  const put = (key: string, old: string, value: string, read: (text: string) => unknown = (text) => text) => {
    if (value !== old) changed[key] = value === '' ? null : read(value)
  }
  put('description', before.description, after.description)
  put('session_mode', before.sessionMode, after.sessionMode)
  put('timeout_ms', before.timeout, after.timeout, Number)
  put('max_concurrency', before.concurrency, after.concurrency, Number)
  if (differ(before.rate, after.rate)) changed.rate_limit = rateLimit(after.rate)
  const limits = changedLimits(before.toolLimits, after.toolLimits)
  if (Object.keys(limits).length > 0) changed.tool_limits = limits
  // The gateway drops the settings of the old transport, secrets too, so all of them are sent.
  if (after.isUrl && after.transport !== before.transport) return { ...changed, ...endpoint(after) }
  const entries = changedPairs(before.pairs, after.pairs)
  if (Object.keys(entries).length > 0) changed[after.isUrl ? 'headers' : 'env'] = entries
  if (!after.isUrl) {
    if (after.line !== before.line) Object.assign(changed, program(after.line))
    put('cwd', before.cwd, after.cwd)
    put('placement', before.placement, after.placement)
    return changed
  }
  put('url', before.url, after.url.trim())
  put('oauth_client_id', before.clientId, after.clientId)
  put('oauth_scopes', before.scopes, after.scopes, listed)
  if (after.token !== '') changed.bearer_token = after.token
  else if (after.isTokenRemoved) changed.bearer_token = null
  if (after.clientSecret !== '') changed.oauth_client_secret = after.clientSecret
  return changed
}

/** What is wrong with a rate limit as typed; empty if nothing is. */
export function rateProblem({ calls, burst }: RateDraft): string {
  const isCount = (text: string) => /^[1-9]\d*$/.test(text)
  if (calls === '' && burst === '') return ''
  if (!isCount(calls)) return 'needs calls per minute: a whole number of at least 1'
  return burst === '' || isCount(burst) ? '' : 'has a wrong burst: it must be a whole number of at least 1'
}

/** What is wrong with the limits of single tools; empty if nothing is. */
export function toolLimitsProblem(limits: ToolLimit[]): string {
  const names = limits.map((limit) => limit.tool.trim())
  if (names.includes('')) return 'Every limit needs the name of a tool.'
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined) return `There are two limits for ${twice}.`
  for (const limit of limits) {
    const problem = limit.calls === '' ? rateProblem({ ...limit, calls: '-' }) : rateProblem(limit)
    if (problem !== '') return `The limit of ${limit.tool} ${problem}`
  }
  return ''
}

function rateDraft(limit: ServerDetails['rate_limit']): RateDraft {
  return { calls: String(limit?.calls_per_minute ?? ''), burst: String(limit?.burst ?? '') }
}

function rateLimit({ calls, burst }: RateDraft): RateLimit | null {
  if (calls === '') return null
  return burst === '' ? { calls_per_minute: Number(calls) } : { calls_per_minute: Number(calls), burst: Number(burst) }
}

function toolLimits(limits: ToolLimit[]): Record<string, RateLimit> {
  return Object.fromEntries(
    limits.flatMap((limit) => {
      const rate = rateLimit(limit)
      return rate ? [[limit.tool.trim(), rate]] : []
    }),
  )
}

function differ(before: RateDraft, after: RateDraft): boolean {
  return before.calls !== after.calls || before.burst !== after.burst
}

function changedLimits(before: ToolLimit[], after: ToolLimit[]): Record<string, RateLimit | null> {
  const old = new Map(before.map((limit) => [limit.tool, limit]))
  const kept = new Set(after.map((limit) => limit.tool.trim()))
  const removed = before.filter((limit) => !kept.has(limit.tool)).map((limit) => [limit.tool, null] as const)
  const given = after.filter((limit) => {
    const earlier = old.get(limit.tool.trim())
    return earlier === undefined || differ(earlier, limit)
  })
  return { ...Object.fromEntries(removed), ...toolLimits(given) }
}

function changedPairs(before: Pair[], after: Pair[]): Record<string, string | null> {
  const kept = new Set(after.filter((pair) => pair.isStored).map((pair) => pair.name))
  const removed = before.filter((pair) => !kept.has(pair.name)).map((pair) => [pair.name, null] as const)
  const given = after.filter((pair) => !pair.isStored || pair.value !== '')
  return { ...Object.fromEntries(removed), ...values(given) }
}

function values(pairs: Pair[]): Record<string, string> {
  return Object.fromEntries(
    pairs.filter((pair) => pair.name.trim() !== '').map((pair) => [pair.name.trim(), pair.value]),
  )
}

function program(line: string): { command: string; args: string[] } {
  const words = split(line)
  return 'problem' in words ? { command: '', args: [] } : words
}

function listed(scopes: string): string[] {
  return scopes.split(/[\s,]+/).filter(Boolean)
}
