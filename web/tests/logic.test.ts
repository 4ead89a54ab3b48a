// The small rules of the dashboard: search, names, command lines, templates, group members, formats.

import { expect, test } from 'vitest'
import { quote, split } from '../src/logic/commandline'
import { amount, fullness, isHeld, passing, percent, refused } from '../src/logic/limits'
import { byServer, effective, isIncluded, toggleServer, toggleTool } from '../src/logic/members'
import { checkGroupName, checkServerName, checkUrl, guessName } from '../src/logic/naming'
import { cli, curl } from '../src/logic/repeat'
import { find, index, parameterNames } from '../src/logic/search'
import { snippets } from '../src/logic/snippets'
import { expand, variables } from '../src/logic/template'
import { aboutTokens, tokens, tokensOf } from '../src/logic/tokens'
import { ago, clock, duration, uptime } from '../src/logic/words'

test('a thousand tools are filtered in less than 50 ms', () => {
  const tools = Array.from({ length: 1000 }, (_, at) => ({
    name: `server__tool_${at}`,
    text: 'Does something with a file, a path and a query. '.repeat(8),
  }))
  const indexed = index(
    tools,
    (tool) => tool.name,
    (tool) => tool.text,
  )
  const begun = performance.now()
  expect(find(indexed, 'tool_99').length).toBe(11)
  expect(performance.now() - begun).toBeLessThan(50)
})

test('names count more than descriptions, and all words must occur', () => {
  const things = [
    { name: 'a__close_issue', text: 'Ends it' },
    { name: 'a__issue', text: '' },
    { name: 'b__time', text: 'When an issue was made' },
    { name: 'c__Éclair', text: 'sweet' },
  ]
  const search = (query: string) =>
    find(
      index(
        things,
        (one) => one.name,
        (one) => one.text,
      ),
      query,
    ).map((one) => one.name)
  expect(search('issue')).toEqual(['a__close_issue', 'a__issue', 'b__time'])
  expect(search('iss')).toEqual(['a__close_issue', 'a__issue', 'b__time'])
  expect(search('issue close')).toEqual(['a__close_issue'])
  expect(search('ECLAIR')).toEqual(['c__Éclair'])
  expect(search('nothing')).toEqual([])
  expect(search(' ')).toHaveLength(4)
})

test('parameters are found however deep they are', () => {
  const schema = { properties: { a: { properties: { deep: {} } }, list: { items: { properties: { inner: {} } } } } }
  expect(parameterNames(schema).split(/\s+/)).toEqual(['a', 'deep', 'list', 'inner'])
})

test('command lines are taken apart as a shell does it', () => {
  expect(split('npx -y pkg')).toEqual({ command: 'npx', args: ['-y', 'pkg'] })
  expect(split(`sh -c 'echo "a b"' "" x\\ y "q\\"q"`)).toEqual({
    command: 'sh',
    args: ['-c', 'echo "a b"', '', 'x y', 'q"q'],
  })
  expect(split('  ')).toHaveProperty('problem')
  expect(split('a "b')).toHaveProperty('problem')
  for (const word of ['plain', "it's", '{"a": 1}', '$HOME', '']) {
    const again = split(`x ${quote(word)}`)
    expect('args' in again ? again.args : []).toEqual([word])
  }
})

test('good names are guessed', () => {
  expect(guessName(['npx', '-y', '@modelcontextprotocol/server-everything'])).toBe('everything')
  expect(guessName(['npx', '-y', '@modelcontextprotocol/server-github@1.2.3'])).toBe('github')
  expect(guessName(['uvx', 'mcp-server-time', '--local-timezone=UTC'])).toBe('time')
  expect(guessName(['/opt/tools/weather.py'])).toBe('weather')
  expect(guessName(['https://mcp.deepwiki.com/mcp'])).toBe('deepwiki')
  expect(guessName(['http://localhost:3000/mcp'])).toBe('localhost')
  expect(guessName([''])).toBe('')
})

test('names and URLs are checked by the rules of the gateway', () => {
  for (const name of ['a', 'A-1', 'a_b', 'x'.repeat(64)]) expect(checkServerName(name)).toBe('')
  for (const name of ['', 'a__b', 'a_', 'a b', 'ä', 'x'.repeat(65)]) expect(checkServerName(name)).not.toBe('')
  expect(checkGroupName('1a_')).toBe('')
  for (const name of ['', '-a', '_a', 'a b']) expect(checkGroupName(name)).not.toBe('')
  for (const url of ['http://a', 'https://a.b/c?d']) expect(checkUrl(url)).toBe('')
  for (const url of ['', 'a', 'ftp://a', 'http://']) expect(checkUrl(url)).not.toBe('')
})

test('templates are filled in', () => {
  expect(variables('x://{a}/{b,c}{?d}')).toEqual(['a', 'b', 'c', 'd'])
  expect(expand('x://{a}/{b}', { a: 'one two', b: 'é/2' })).toBe('x://one%20two/%C3%A9%2F2')
  expect(expand('file:///{+path}', { path: 'a/b c' })).toBe('file:///a/b%20c')
  expect(expand('x://y{?a,b}', { a: '1', b: '2' })).toBe('x://y?a=1&b=2')
  expect(expand('x://y{?a,b}', { b: '2' })).toBe('x://y?b=2')
})

const tool = (name: string, enabled = true) => ({ canonical_name: name, server: name.split('__')[0] ?? '', enabled })
const nothing = { included_servers: [], included_tools: [], excluded_tools: [] }

test('a click on a tool includes or excludes it, whichever is needed', () => {
  const one = toggleTool(nothing, tool('s__a'))
  expect(one.included_tools).toEqual(['s__a'])
  expect(toggleTool(one, tool('s__a'))).toEqual(nothing)
  const whole = toggleServer(one, 's')
  expect(whole).toEqual({ included_servers: ['s'], included_tools: [], excluded_tools: [] })
  const without = toggleTool(whole, tool('s__a'))
  expect(without.excluded_tools).toEqual(['s__a'])
  expect(isIncluded(without, tool('s__a'))).toBe(false)
  expect(toggleTool(without, tool('s__a'))).toEqual(whole)
  expect(toggleServer(without, 's')).toEqual(nothing)
})

test('a preview has what is enabled', () => {
  const group = { included_servers: ['s'], included_tools: ['t__x'], excluded_tools: ['s__b'] }
  const all = [tool('s__a'), tool('s__b'), tool('s__c', false), tool('t__x'), tool('t__y')]
  expect(effective(group, all).map((one) => one.canonical_name)).toEqual(['s__a', 't__x'])
})

test('tools are listed by server, in the order of the servers', () => {
  const [a, b, c] = [tool('t__a'), tool('s__b'), tool('t__c')]
  expect(byServer(['s', 'u', 't'], [a, b, c])).toEqual([
    ['s', [b]],
    ['u', []],
    ['t', [a, c]],
  ])
  expect(byServer([], [a, b])).toEqual([
    ['t', [a]],
    ['s', [b]],
  ])
})

test('every snippet has the address, and those that are JSON are valid', () => {
  const url = 'http://127.0.0.1:8080/mcp'
  const all = snippets(url)
  expect(all.map((one) => one.client)).toEqual([
    'Claude Code',
    'Claude Desktop',
    'Cursor',
    'VS Code',
    'ChatGPT',
    'Python',
    'TypeScript',
  ])
  for (const one of all) {
    if (one.client !== 'Claude Desktop') expect(one.text).toContain(url)
    if (one.text.startsWith('{')) expect(() => JSON.parse(one.text)).not.toThrow()
  }
  const link = (client: string) => new URL(all.find((one) => one.client === client)?.link ?? '')
  const cursor = link('Cursor')
  expect(cursor.href).toMatch(/^cursor:\/\/anysphere\.cursor-deeplink\/mcp\/install\?/)
  expect(cursor.searchParams.get('name')).toBe('toolgate')
  expect(JSON.parse(atob(cursor.searchParams.get('config') ?? ''))).toEqual({ url })
  const code = link('VS Code')
  expect(code.href).toMatch(/^vscode:mcp\/install\?/)
  expect(JSON.parse(decodeURIComponent(code.search.slice(1)))).toEqual({ name: 'toolgate', type: 'http', url })
})

test('Claude Desktop starts toolgate, with the address of the gateway and the group', () => {
  const desktop = (url: string, group?: string) => snippets(url, group).find((one) => one.client === 'Claude Desktop')
  const all = desktop('https://example.com/gate/mcp')
  expect(JSON.parse(all?.text ?? '')).toEqual({
    mcpServers: { toolgate: { command: 'toolgate', args: ['stdio', '--registry', 'https://example.com/gate'] } },
  })
  expect(all?.remark).toContain('toolgate connect claude-desktop --registry https://example.com/gate.')
  const few = desktop('http://127.0.0.1:8080/v0/groups/few/mcp', 'few')
  expect(JSON.parse(few?.text ?? '')).toEqual({
    mcpServers: {
      few: { command: 'toolgate', args: ['stdio', '--registry', 'http://127.0.0.1:8080', '--group', 'few'] },
    },
  })
  expect(few?.remark).toContain(
    'toolgate connect claude-desktop --registry http://127.0.0.1:8080 --group few --name few.',
  )
})

test('a call is repeated over REST and by the command line, at the address of the gateway', () => {
  const schema = { properties: { text: {} } }
  expect(curl('http://127.0.0.1:9', 's__t', schema, '{"text": "it\'s", "big": 98765432109876543210}')).toBe(
    `curl -X POST http://127.0.0.1:9/api/v0/tools/invoke -d '{"name":"s__t","text": "it'\\''s", "big": 98765432109876543210}'`,
  )
  expect(curl('http://h', 's__t', schema, ' {} ')).toBe(
    `curl -X POST http://h/api/v0/tools/invoke -d '{"name":"s__t"}'`,
  )
  expect(curl('http://h', 's__t', { properties: { name: {} } }, '{"name":"x"}')).toBe(
    `curl -X POST http://h/api/v0/tools/invoke -d '{"name":"s__t","arguments":{"name":"x"}}'`,
  )
  expect(curl('http://h', 's__t', { properties: { name: {}, arguments: {} } }, '{"name":"x"}')).toBeUndefined()
  expect(cli('http://127.0.0.1:9', 's__t', '{}')).toBe(
    `toolgate invoke s__t --input '{}' --registry http://127.0.0.1:9`,
  )
  for (const usual of ['http://127.0.0.1:8080', 'http://localhost:8080'])
    expect(cli(usual, 's__t', '{}')).toBe("toolgate invoke s__t --input '{}'")
})

test('tokens are estimated from the definition of a tool', () => {
  const tool = { canonical_name: 's__t', description: 'x'.repeat(400), input_schema: { type: 'object' } }
  expect(tokens(tool)).toBe(117)
  expect(tokensOf([tool, tool])).toBe(234)
  expect([7, 117, 4231, 0].map(aboutTokens)).toEqual([
    'about 7 tokens',
    'about 120 tokens',
    'about 4,200 tokens',
    'about 0 tokens',
  ])
})

test('times are words', () => {
  expect(duration(0.2)).toBe('1 ms')
  expect(duration(1500)).toBe('1.50 s')
  expect(duration(61_000)).toBe('1 min 1 s')
  expect(clock('2026-01-01T00:02:03.500Z')).toMatch(/^\d{2}:\d{2}:03$/)
  expect(uptime(0)).toBe('0 s')
  expect(uptime(90_061)).toBe('1 d 1 h')
  expect(ago('2026-01-01T00:00:00Z', Date.parse('2026-01-01T00:02:00Z'))).toBe('2 min ago')
})

test('a limit shows how full it is, and limits that refused something come first', () => {
  const limit = (bound: string, refusals: number, used?: number, most?: number) => ({
    ...{ bound, refusals, label: bound, unit: bound === 'buffered_bytes' ? 'bytes' : null },
    ...(used === undefined ? {} : { used, limit: most ?? 0 }),
  })
  const calls = (used: number) => ({ ...limit('calls', 0), used, limit: 1000 })
  expect([0, 1, 500, 1000, 1001].map((used) => percent(calls(used)))).toEqual([0, 1, 50, 100, 100])
  expect([0, 799, 800, 999, 1000].map((used) => fullness(calls(used)))).toEqual([
    'free',
    'free',
    'nearly full',
    'nearly full',
    'full',
  ])
  const bytes = limit('buffered_bytes', 0)
  expect([0, 1536, 512 * 1024 * 1024].map((number) => amount(number, bytes))).toEqual(['0 B', '1.5 kB', '512 MB'])
  expect(amount(20_000, limit('connections', 0))).toBe('20,000')
  expect([0, 1, 1200].map(refused)).toEqual(['nothing refused', 'refused 1 time', 'refused 1,200 times'])
  const all = [limit('calls', 7, 0, 5), limit('a', 1), limit('b', 0), limit('c', 3)]
  expect(all.filter(isHeld).map((one) => one.bound)).toEqual(['calls'])
  const { refusing, quiet } = passing(all)
  expect(refusing.map((one) => one.bound)).toEqual(['c', 'a'])
  expect(quiet.map((one) => one.bound)).toEqual(['b'])
})
