// Every page: accessible, without secrets, still usable after the gateway was away; and screenshots in every form.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { fakeCommandWith, startFake, startGateway, stdio } from './gateway.mjs'

const PAGES = [
  ['overview', '#/'],
  ['activity', '#/activity'],
  ['activity-filtered', '#/activity?outcome=tool_error&principal=nobody'],
  ['servers', '#/servers'],
  ['server', '#/servers/github'],
  ['server-failed', '#/servers/broken'],
  ['server-edit', '#/servers/github/edit'],
  ['server-edit-url', '#/servers/broken/edit'],
  ['add-by-command', '#/servers/add'],
  ['add-by-url', '#/servers/add?by=url'],
  ['add-by-paste', '#/servers/add?by=paste'],
  ['tools', '#/tools'],
  ['tool', '#/tools/github__add'],
  ['groups', '#/groups'],
  ['group', '#/groups/few'],
  ['group-new', '#/groups/new'],
  ['prompts', '#/prompts'],
  ['prompt', '#/prompts/github__greet'],
  ['resources', '#/resources'],
  ['resource', '#/resources/github/fake%3A%2F%2Ftext'],
  ['system', '#/system'],
]
const EMPTY = PAGES.filter(([name]) =>
  ['overview', 'activity', 'servers', 'tools', 'groups', 'prompts', 'resources', 'system', 'add-by-command'].includes(
    name,
  ),
)

async function fill(t, gateway) {
  await gateway.register(
    stdio(
      'github',
      { stderr: ['GitHub MCP server running on stdio'] },
      { description: 'Issues and pull requests', env: { TOKEN: 'secret' } },
    ),
  )
  await gateway.register(stdio('time', { tools: [], tool_count: 4, prompts: [], resources: [], templates: [] }))
  const fake = await startFake(t)
  await gateway.register({ name: 'broken', transport: 'streamable_http', url: fake.url })
  await gateway.register(stdio('off', { tools: [], tool_count: 2 }))
  await gateway.ask('POST', '/api/v0/servers/off/disable')
  await gateway.ask('POST', '/api/v0/tools/disable?entity=github__add_tool')
  await gateway.ask('POST', '/api/v0/tool-groups', {
    name: 'few',
    description: 'What the bot needs',
    included_tools: ['github__add', 'github__echo'],
  })
  await fake.stop()
  await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'broken__echo' }).catch(() => {})
  await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'github__fail' })
  const deadline = Date.now() + 20_000
  while ((await gateway.ask('GET', '/api/v0/servers/broken')).status !== 'failed')
    assert.ok(Date.now() < deadline, 'it fails')
}

async function visitAll(visit, gateway, pages, suffix) {
  for (const [name, hash] of pages) {
    await visit.page.goto(`${gateway.url}/${hash}`)
    await visit.page.getByRole('main').locator(':scope > *').first().waitFor()
    await visit.page.waitForFunction(() => !document.body.innerText.includes('Loading …'))
    await assertAccessible(visit.page, `${name} ${suffix}`)
    await picture(visit.page, `${name}-${suffix}`)
    const wider = await visit.page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    )
    assert.ok(wider <= 0, `${name} ${suffix} is ${wider} pixels wider than the screen`)
  }
}

for (const scheme of ['light', 'dark']) {
  for (const [size, width, height] of [
    ['wide', 1440, 900],
    ['narrow', 390, 780],
  ]) {
    test(`every page is accessible, ${scheme} and ${size}`, async (t) => {
      const gateway = await startGateway(t)
      const visit = await open(t, gateway, { width, height, scheme })
      await visitAll(visit, gateway, EMPTY, `empty-${scheme}-${size}`)
      await fill(t, gateway)
      const calls = await gateway.calls(2)
      const opened = calls.map(({ id, outcome }) => [`call-${outcome}`, `#/activity/${id}`])
      await visitAll(visit, gateway, [...PAGES, ...opened], `${scheme}-${size}`)
      assertClean(visit)
    })
  }
}

test('planted secrets appear nowhere', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t, { bearer: 'quokka-0003' })
  const url = `${fake.url.replace('http://', 'http://okapi:axolotl@')}?key=tapir-0006`
  await gateway.register({
    name: 'web',
    transport: 'streamable_http',
    url,
    headers: { Authorization: 'Bearer quokka-0003', 'X-Key': 'dugong-0004' },
  })
  await gateway.register({
    name: 'local',
    transport: 'stdio',
    ...fakeCommandWith(['--api-key', 'gecko-0008']),
    env: { TOKEN: 'lemur-0001' },
  })
  const visit = await open(t, gateway)
  const { page, seen } = visit
  let shown = ''
  for (const hash of [
    '#/',
    '#/activity',
    '#/servers/web',
    '#/servers/local',
    '#/servers/web/edit',
    '#/servers/local/edit',
    '#/tools/web__echo',
    '#/prompts',
    '#/resources',
    '#/groups/new',
    '#/system',
  ]) {
    await page.goto(`${gateway.url}/${hash}`)
    await page.getByText('Loading …').waitFor({ state: 'hidden' })
    await page.getByRole('main').locator(':scope > *').first().waitFor()
    shown += await page.content()
  }
  await page.goto(`${gateway.url}/#/tools/web__echo`)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  shown += await page.content()
  assert.ok(shown.includes('TOKEN') && shown.includes('X-Key'), 'names are no secrets')
  const all = shown + seen.bodies.join('\n')
  for (const secret of ['quokka', 'axolotl', 'okapi', 'tapir', 'dugong', 'lemur', 'gecko']) {
    assert.ok(
      !all.includes(secret),
      `${secret} is in ${all.slice(Math.max(0, all.indexOf(secret) - 200), all.indexOf(secret) + 50)}`,
    )
  }
  assertClean(visit)
})

test('an unreachable gateway is shown, the data stays, and everything is up to date when it is back', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s', { tools: [], tool_count: 2 }))
  const visit = await open(t, gateway, {
    hash: '#/tools',
    mayFail: ['ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED', 'ERR_CONNECTION_RESET'],
  })
  const { page } = visit
  await page.getByText('2 tools').first().waitFor()
  gateway.child.kill('SIGTERM')
  await gateway.ended
  await page.getByText('Lost the connection to the gateway. Reconnecting').waitFor()
  await page.getByRole('link', { name: /s__filler_0000/ }).waitFor()
  const port = new URL(gateway.url).port
  const again = spawn(process.env.TOOLGATE, ['start', '--port', port], {
    cwd: gateway.folder,
    env: { PATH: process.env.PATH },
    stdio: 'ignore',
  })
  t.after(() => again.kill('SIGTERM'))
  await page.getByText('Lost the connection').waitFor({ state: 'hidden' })
  await gateway.ask('POST', '/api/v0/tools/disable?entity=s__filler_0000')
  await page.getByRole('switch', { name: 's__filler_0000 enabled', checked: false }).waitFor()
  assertClean(visit)
})

test('the theme is chosen and kept', async (t) => {
  const gateway = await startGateway(t)
  const visit = await open(t, gateway, { hash: '#/system' })
  const { page } = visit
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor)
  const light = await paper()
  await page.getByRole('button', { name: 'Dark theme', exact: true }).click()
  const dark = await paper()
  assert.notEqual(dark, light)
  await page.reload()
  await page.getByRole('button', { name: 'Dark theme', exact: true, pressed: true }).waitFor()
  assert.equal(await paper(), dark)
  assertClean(visit)
})

test('snippets for clients have the address of the chosen group', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tool-groups', { name: 'few', included_tools: ['s__echo'] })
  const visit = await open(t, gateway)
  const { page } = visit
  const text = page.getByRole('region', { name: 'Connect an agent' }).locator('pre')
  for (const client of ['Claude Code', 'Cursor', 'VS Code', 'ChatGPT', 'Python', 'TypeScript']) {
    await page.getByRole('tab', { name: client, exact: true }).click()
    await text.getByText(`${gateway.url}/mcp`).waitFor()
  }
  await page.getByLabel('What the agent sees').selectOption('Group few')
  for (const client of ['Cursor', 'VS Code']) {
    await page.getByRole('tab', { name: client, exact: true }).click()
    const link = page.getByRole('link', { name: `Add to ${client}` })
    const address = decodeURIComponent(await link.getAttribute('href'))
    const config = client === 'Cursor' ? atob(new URL(address).searchParams.get('config')) : address
    assert.ok(config.includes(`${gateway.url}/v0/groups/few/mcp`), address)
  }
  await text.getByText(`${gateway.url}/v0/groups/few/mcp`).waitFor()
  await page.getByRole('tab', { name: 'Claude Desktop', exact: true }).click()
  await text.getByText('--group').waitFor()
  const entry = JSON.parse(await text.innerText()).mcpServers.few
  assert.deepEqual(entry, { command: 'toolgate', args: ['stdio', '--registry', gateway.url, '--group', 'few'] })
  assertClean(visit)
})

test('a client that connects appears where clients are set up', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tool-groups', { name: 'few', included_tools: ['s__echo'] })
  const visit = await open(t, gateway)
  const { page } = visit
  const clients = page.getByRole('group', { name: 'Connected clients' })
  await clients.getByText('No client has connected').waitFor()
  const connect = async (name, path) => {
    const client = new Client({ name, version: '1.2' })
    await client.connect(new StreamableHTTPClientTransport(new URL(path, gateway.url)))
    t.after(() => client.close())
  }
  await connect('Cursor', '/mcp')
  await clients.getByText('Cursor 1.2').waitFor()
  await clients.getByText('connected just now').waitFor()
  await connect('<b>Other</b>', '/v0/groups/few/mcp')
  const other = clients.getByRole('listitem').first()
  await other.getByText('<b>Other</b> 1.2').waitFor()
  await other.getByRole('link', { name: 'few' }).waitFor()
  assert.equal(await clients.getByRole('listitem').count(), 2)
  await assertAccessible(page, 'connected clients')
  await picture(page, 'clients')
  assertClean(visit)
})

test('a full disk is shown on every page until it has space again', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('github'))
  const visit = await open(t, gateway, { hash: '#/groups' })
  const alert = visit.page.getByRole('alert').filter({ hasText: 'Changes cannot be saved' })
  await visit.page.getByRole('main').locator(':scope > *').first().waitFor()
  assert.equal(await alert.count(), 0)
  const limit = (bytes) =>
    assert.equal(spawnSync('prlimit', [`--pid=${gateway.child.pid}`, `--fsize=${bytes}:`]).status, 0)
  limit('1')
  await assert.rejects(gateway.ask('POST', '/api/v0/tool-groups', { name: 'few', included_servers: ['github'] }), /503/)
  await alert.waitFor()
  await assertAccessible(visit.page, 'a full disk')
  await picture(visit.page, 'disk-full')
  await visit.page.goto(`${gateway.url}/#/`)
  await visit.page.getByRole('main').getByText('Changes cannot be saved').waitFor()
  limit('unlimited')
  await alert.waitFor({ state: 'hidden' })
  await visit.page.getByText('All servers are connected').waitFor()
})
