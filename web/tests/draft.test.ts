// The form of a server: what it sends for a new server, and for changes of a registered one.

import { expect, test } from 'vitest'
import type { Server, ServerDetails } from '../src/api/client'
import { changes, draftOf, emptyDraft, registration } from '../src/logic/draft'

const details = {
  cwd: '/srv',
  timeout_ms: 1000,
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
