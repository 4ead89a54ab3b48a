// What the form of a server holds: the registration of a new server, or the changes of a registered one.

import type { RegistrationInput, Server, ServerDetails } from '../api/client'
import { split } from './commandline'

/** A name with a secret value: an environment variable or a header. */
export interface Pair {
  name: string
  value: string
  /** Whether a value is stored; it stays unless another one is entered. */
  isStored?: boolean
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
  timeout: string
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
    timeout: '',
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
    timeout: String(details.timeout_ms),
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
  }
  if (!draft.isUrl) {
    return { ...common, transport: 'stdio', ...program(draft.line), env: named, cwd: some(draft.cwd, draft.cwd !== '') }
  }
  return {
    ...common,
    transport: draft.transport,
    url: draft.url.trim(),
    bearer_token: some(draft.token, draft.token !== ''),
    headers: named,
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
  const entries = changedPairs(before.pairs, after.pairs)
  if (Object.keys(entries).length > 0) changed[after.isUrl ? 'headers' : 'env'] = entries
  if (!after.isUrl) {
    if (after.line !== before.line) Object.assign(changed, program(after.line))
    put('cwd', before.cwd, after.cwd)
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
