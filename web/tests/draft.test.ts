// The form of a server: what it sends for a new server, and for changes of a registered one.

import { expect, test } from 'vitest'
import type { Server, ServerDetails } from '../src/api/client'
import { changes, draftOf, emptyDraft, rateProblem, registration, toolLimitsProblem } from '../src/logic/draft'

const details = {
  cwd: '/srv',
  timeout_ms: 1000,
  max_concurrency: 0,
  tool_limits: {},
  oauth_client_id: 'me',
  oauth_scopes: ['a', 'b'],
} as unknown as ServerDetails

function server(config: object): Server {
  const summary = {
    description: 'd',
    session_mode: 'stateful',
    env_keys: [],
    header_keys: [],
    command_line: '',
    target: '',
  }
  return { name: 's', config_summary: { ...summary, ...config } } as unknown as Server
}

test('a new server has what was filled in', () => {
  expect(registration({ ...emptyDraft(false, 'npx -y pkg'), name: 's', pairs: [{ name: ' A ', value: 'x' }] })).toEqual(
    {
      name: 's',
      transport: 'stdio',
      session_mode: 'stateless',
      command: 'npx',
      args: ['-y', 'pkg'],
      env: { A: 'x' },
    },
  )
  const web = { ...emptyDraft(true, ''), name: 's', url: ' http://h/mcp ', token: 't', scopes: 'a, b' }
  expect(registration(web)).toEqual({
    name: 's',
    transport: 'streamable_http',
    session_mode: 'stateless',
    url: 'http://h/mcp',
    bearer_token: 't',
    oauth_scopes: ['a', 'b'],
  })
})

test('the placement of a process is sent if it is not the default', () => {
  const one = { ...emptyDraft(false, 'npx'), name: 's', placement: 'one' }
  expect(registration(one)).toMatchObject({ transport: 'stdio', placement: 'one' })
  expect(registration({ ...one, isUrl: true, url: 'http://h/mcp' })).not.toHaveProperty('placement')
  const stored = draftOf(server({ kind: 'stdio', command_line: 'npx' }), { ...details, placement: 'one' })
  expect(stored.placement).toBe('one')
  expect(changes(stored, { ...stored, placement: 'each' })).toEqual({ placement: 'each' })
})

test('only what changed is sent, and secrets stay', () => {
  const local = draftOf(server({ kind: 'stdio', command_line: 'npx --key •••', env_keys: ['A', 'B', 'C'] }), details)
  expect(changes(local, { ...local })).toEqual({})
  const [a, , c] = local.pairs
  const edited = { ...local, line: 'npx --key ••• -v', cwd: '', timeout: '', description: '' }
  const pairs = [{ ...a!, value: 'new' }, c!, { name: 'D', value: 'more' }]
  expect(changes(local, { ...edited, pairs })).toEqual({
    command: 'npx',
    args: ['--key', '•••', '-v'],
    cwd: null,
    timeout_ms: null,
    description: null,
    env: { A: 'new', B: null, D: 'more' },
  })
  const web = draftOf(server({ kind: 'sse', target: 'http://h/sse', header_keys: ['X-Key'] }), details)
  expect(changes(web, { ...web })).toEqual({})
  expect(changes(web, { ...web, url: 'http://h/other', isTokenRemoved: true, scopes: 'a', clientSecret: 'x' })).toEqual(
    {
      url: 'http://h/other',
      bearer_token: null,
      oauth_scopes: ['a'],
      oauth_client_secret: 'x',
    },
  )
})

test('limits are filled in, and only those that changed are sent', () => {
  const limits = {
    ...details,
    max_concurrency: 3,
    rate_limit: { calls_per_minute: 60, burst: 5 },
    tool_limits: { a: { calls_per_minute: 1 }, b: { calls_per_minute: 2 }, 'c*': { calls_per_minute: 3 } },
  }
  const before = draftOf(server({ kind: 'stdio' }), limits)
  expect([before.concurrency, before.rate]).toEqual(['3', { calls: '60', burst: '5' }])
  expect(changes(before, { ...before })).toEqual({})
  const [a, b] = before.toolLimits
  const toolLimits = [a!, { ...b!, calls: '7' }, { tool: ' d ', calls: '8', burst: '9' }]
  expect(changes(before, { ...before, concurrency: '', rate: { calls: '30', burst: '' }, toolLimits })).toEqual({
    max_concurrency: null,
    rate_limit: { calls_per_minute: 30 },
    tool_limits: { b: { calls_per_minute: 7 }, 'c*': null, d: { calls_per_minute: 8, burst: 9 } },
  })
  expect(changes(before, { ...before, rate: { calls: '', burst: '' } })).toEqual({ rate_limit: null })
})

test('a new transport is sent with everything that belongs to it', () => {
  const before = draftOf(server({ kind: 'streamable_http', target: 'http://h/mcp', header_keys: ['X-Key'] }), details)
  const after = { ...before, transport: 'sse', url: 'http://h/sse', pairs: [{ name: 'X-New', value: 'x' }] }
  expect(changes(before, after)).toEqual({
    transport: 'sse',
    url: 'http://h/sse',
    headers: { 'X-New': 'x' },
    oauth_client_id: 'me',
    oauth_scopes: ['a', 'b'],
  })
})

test('limits are checked', () => {
  expect(rateProblem({ calls: '', burst: '' })).toBe('')
  expect(rateProblem({ calls: '60', burst: '5' })).toBe('')
  expect(rateProblem({ calls: '', burst: '5' })).toContain('calls per minute')
  expect(rateProblem({ calls: '0', burst: '' })).toContain('at least 1')
  expect(rateProblem({ calls: '1', burst: '1.5' })).toContain('burst')
  const limit = { tool: 'a', calls: '1', burst: '' }
  expect(toolLimitsProblem([limit])).toBe('')
  expect(toolLimitsProblem([{ ...limit, tool: ' ' }])).toContain('name of a tool')
  expect(toolLimitsProblem([limit, { ...limit, tool: 'a ' }])).toContain('two limits for a')
  expect(toolLimitsProblem([{ ...limit, calls: '' }])).toContain('calls per minute')
})
