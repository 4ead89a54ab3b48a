// Servers: added by the form, by a pasted config and by keyboard only; one that fails and recovers; enable and disable.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { fakeCommand, fakeCommandWith, startFake, startGateway, stdio } from './gateway.mjs'

const quote = (word) => `'${word}'`
const commandLine = (behaviour) => {
  const { command, args } = fakeCommand(behaviour)
  return [command, ...args].map(quote).join(' ')
}

test('the first server is added by the form, and its tool is run', async (t) => {
  const gateway = await startGateway(t)
  const visit = await open(t, gateway)
  const { page } = visit
  await page.getByRole('link', { name: /Enter a command or URL/ }).click()
  await page.getByLabel('Command', { exact: true }).fill('npx -y @modelcontextprotocol/server-time')
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'time', 'a name is guessed')
  await page.getByLabel('Command', { exact: true }).fill(commandLine({ stderr: ['ready'] }))
  await page.getByLabel('Name', { exact: true }).fill('bad name')
  await page.getByText("The name may contain only letters, digits, '-' and '_'").waitFor()
  await page.getByLabel('Name', { exact: true }).fill('first')
  await page.getByRole('button', { name: 'Add first' }).click()
  await page.getByRole('heading', { name: 'first' }).waitFor()
  await page.getByText('first is connected: 37 tools').waitFor()
  await page.getByRole('link', { name: '37 tools', exact: true }).click()
  await page.getByRole('link', { name: /first__echo Returns/ }).click()
  await page.getByLabel(/^text/).fill('hello')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByText('#1 Succeeded').waitFor()
  await page.getByLabel('text', { exact: true }).getByText('hello').waitFor()
  assertClean(visit)
})

test('a command that does not exist is refused with the reason, and nothing is registered', async (t) => {
  const gateway = await startGateway(t)
  const visit = await open(t, gateway, { hash: '#/servers/add', mayFail: ['500'] })
  const { page } = visit
  await page.getByLabel('Command', { exact: true }).fill('/no/such/program --flag')
  await page.getByLabel('Name', { exact: true }).fill('none')
  await page.getByRole('button', { name: 'Add none' }).click()
  const alert = page.getByRole('alert').filter({ hasText: 'none was not added' })
  await alert.getByText('/no/such/program').waitFor()
  await alert.getByText('enter its full path').waitFor()
  assert.deepEqual(await gateway.ask('GET', '/api/v0/servers'), [])
  assertClean(visit)
})

test('a server that cannot be connected is saved anyway, corrected, and connected', async (t) => {
  const gateway = await startGateway(t)
  const visit = await open(t, gateway, { hash: '#/servers/add', mayFail: ['500'] })
  const { page } = visit
  await page.getByLabel('Command', { exact: true }).fill('/no/such/program --flag')
  await page.getByLabel('Name', { exact: true }).fill('later')
  await page.getByRole('button', { name: 'Add later' }).click()
  await page.getByRole('alert').getByRole('button', { name: 'Save anyway' }).click()
  await page.getByText('later is saved, and the gateway tries to connect it again').waitFor()
  const alert = page.getByRole('alert').filter({ hasText: 'later failed' })
  await alert.getByText('/no/such/program').waitFor()
  await assertAccessible(page)
  await picture(page, 'server-kept')
  const [kept] = await gateway.ask('GET', '/api/v0/servers')
  assert.deepEqual([kept.name, kept.status], ['later', 'failed'])
  await page.getByRole('link', { name: 'Edit', exact: true }).click()
  await page.getByLabel('Command', { exact: true }).fill(commandLine({}))
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('later saved').waitFor()
  const [connected] = await gateway.ask('GET', '/api/v0/servers')
  assert.equal(connected.status, 'connected')
  assertClean(visit)
})

test('a server behind a URL is added', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t, { bearer: 'quokka-0003' })
  const visit = await open(t, gateway, { hash: '#/servers/add', mayFail: ['500'] })
  const { page } = visit
  await page.getByRole('tab', { name: 'URL' }).click()
  await page.getByLabel('URL', { exact: true }).fill(fake.url)
  await page.getByLabel('Name', { exact: true }).fill('web')
  await page.getByRole('button', { name: 'Add web' }).click()
  await page.getByRole('alert').getByText('bearer_token').waitFor()
  await page.getByLabel('Bearer token').fill('quokka-0003')
  await page.getByRole('button', { name: 'Add web' }).click()
  await page.getByRole('heading', { name: 'web' }).waitFor()
  assertClean(visit)
})

test('a pasted config is shown before it is applied', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t)
  const visit = await open(t, gateway, { mayFail: ['400'] })
  const { page } = visit
  await page.getByRole('link', { name: /Paste a configuration/ }).click()
  await page.getByLabel('Configuration file, or part of it').fill('not a config')
  await page.getByText('This is not a valid configuration').waitFor()
  const config = {
    mcpServers: {
      local: { ...fakeCommand(), env: { TOKEN: 'lemur-0001' } },
      web: { url: fake.url },
      broken: { command: 7 },
    },
  }
  await page.getByLabel('Configuration file, or part of it').fill(JSON.stringify(config))
  const preview = page.getByRole('list', { name: 'Preview' })
  await preview.getByText('will be added').first().waitFor()
  assert.equal(await preview.getByRole('listitem').count(), 3)
  await preview.getByText('with TOKEN').waitFor()
  assert.ok(await page.getByLabel('Import broken').isDisabled())
  assert.deepEqual(await gateway.ask('GET', '/api/v0/servers'), [], 'nothing is stored yet')
  await page.getByLabel('Import web').uncheck()
  await page.getByRole('button', { name: 'Import 1 server' }).click()
  const results = page.getByRole('list', { name: 'Import results' })
  const result = (name) => results.getByRole('listitem').filter({ hasText: name })
  await page.getByRole('heading', { name: 'Import finished: 1 added, 2 skipped' }).and(page.locator(':focus')).waitFor()
  await result('local').getByText('Added', { exact: true }).waitFor()
  await result('local').getByText('37 tools').waitFor()
  await result('web').getByText('it was not selected').waitFor()
  await result('broken').getByText('command').waitFor()
  assert.equal(await page.getByRole('checkbox').count(), 0, 'results are not a preview')
  await assertAccessible(page, 'import results')
  await picture(page, 'import-results')
  assert.deepEqual(
    (await gateway.ask('GET', '/api/v0/servers')).map((one) => one.name),
    ['local'],
  )
  await page.getByRole('link', { name: 'local', exact: true }).click()
  await page.getByRole('heading', { name: 'local' }).waitFor()
  assertClean(visit)
})

test('an import that fails in part says why, and only what failed is tried again', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t)
  await fake.stop()
  const visit = await open(t, gateway, { hash: '#/servers/add?by=paste', mayFail: ['500'] })
  const { page } = visit
  const config = { mcpServers: { local: fakeCommand(), web: { url: fake.url }, none: { command: '/no/such/program' } } }
  await page.getByLabel('Configuration file, or part of it').fill(JSON.stringify(config))
  await page.getByRole('button', { name: 'Import 3 servers' }).click()
  await page.getByRole('heading', { name: 'Import finished: 1 added, 2 failed' }).waitFor()
  const result = (name) =>
    page.getByRole('list', { name: 'Import results' }).getByRole('listitem').filter({ hasText: name })
  await result('none').getByText('Failed', { exact: true }).waitFor()
  await result('none').getByText('enter its full path').waitFor()
  await result('web').getByText(fake.url).waitFor()
  await result('web').getByText('it is stored, and the gateway keeps trying to connect').waitFor()
  await page.getByRole('link', { name: 'Connect an agent' }).waitFor()
  await picture(page, 'import-results-failed')
  await startFake(t, {}, fake.port)
  await page.getByRole('button', { name: 'Retry 2 failed servers' }).click()
  await page.getByRole('heading', { name: 'Import finished: 2 added, 1 failed' }).waitFor()
  await page.getByRole('button', { name: 'Edit configuration' }).click()
  assert.match(await page.getByLabel('Configuration file, or part of it').inputValue(), /no\/such\/program/)
  assertClean(visit)
})

test('the first server is added, and its tool run, without a mouse', async (t) => {
  const gateway = await startGateway(t)
  const visit = await open(t, gateway)
  const { page } = visit
  /** Presses Tab until an element with this name has the focus. */
  const reach = async (name) => {
    for (let steps = 0; steps < 60; steps++) {
      await page.keyboard.press('Tab')
      const label = await page.evaluate(() => {
        const at = document.activeElement
        const labels = at?.labels?.[0]?.textContent
        return (at?.getAttribute('aria-label') ?? labels ?? at?.textContent ?? '').trim()
      })
      if (label.startsWith(name)) return
    }
    throw new Error(`${name} is not reached by Tab`)
  }
  await page.getByRole('link', { name: /Enter a command or URL/ }).waitFor()
  await reach('Enter a command or URL')
  await page.keyboard.press('Enter')
  await page.getByLabel('Command', { exact: true }).waitFor()
  await reach('Command')
  await reach('Command')
  await page.keyboard.type(commandLine())
  await reach('Name')
  await page.keyboard.press('Control+A')
  await page.keyboard.type('keys')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'keys' }).waitFor()
  await page.locator('body').press('/')
  await page.keyboard.type('keys add numbers')
  await page.getByRole('option', { name: /keys__add / }).waitFor()
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'keys__add' }).waitFor()
  await reach('a')
  await page.keyboard.type('2')
  await reach('b')
  await page.keyboard.type('40')
  await page.keyboard.press('Control+Enter')
  await page.getByText('#1 Succeeded').waitFor()
  await page.getByLabel('text', { exact: true }).getByText('42').waitFor()
  // The first Escape leaves the field, the second one the tool.
  await page.keyboard.press('Escape')
  await page.keyboard.press('Escape')
  await page.getByText('Select a tool to see').waitFor()
  assertClean(visit)
})

test('a killed server is shown as failed with its reason, and then as connected again', async (t) => {
  const gateway = await startGateway(t, { MCP_SERVER_INIT_REQ_TIMEOUT_SEC: '5' })
  const fake = await startFake(t)
  await gateway.register({ name: 'shaky', transport: 'streamable_http', url: fake.url })
  const visit = await open(t, gateway, { hash: '#/tools', mayFail: ['500'] })
  const { page } = visit
  await page.getByRole('link', { name: /shaky__echo / }).waitFor()
  await fake.stop()
  await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'shaky__echo' }).catch(() => {})
  // The failure is visible from every page; its reason and the way to fix it are two clicks away.
  const glance = page.getByRole('navigation').getByRole('link', { name: /shaky failed/ })
  await glance.waitFor()
  await glance.click()
  const alert = page.getByRole('alert').filter({ hasText: 'shaky failed' })
  await alert.getByText(fake.url).waitFor()
  await alert.getByText('Check that the server is running').waitFor()
  // Clicked while the server is down: once it is up, the gateway may reconnect by itself before any click.
  await page.getByRole('button', { name: 'Retry' }).click()
  await page.getByRole('button', { name: 'Retry', disabled: false }).waitFor()
  await alert.getByText(fake.url).waitFor()
  await startFake(t, {}, fake.port)
  await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'shaky__echo' }).catch(() => {})
  await page.getByRole('region', { name: 'Details' }).getByText('connected', { exact: true }).waitFor()
  await page.getByRole('navigation').getByText('running').waitFor()
  assertClean(visit)
})

test('a process that keeps dying shows its log, live', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('moody', { stderr: ['cannot find the database'] }))
  const visit = await open(t, gateway, { hash: '#/servers/moody' })
  const { page } = visit
  for (let times = 0; times < 4; times++) {
    await gateway.ask('POST', '/api/v0/tools/invoke', { name: 'moody__die', code: 3 }).catch(() => {})
  }
  const alert = page.getByRole('alert').filter({ hasText: 'moody failed' })
  await alert.getByText('it keeps ending').waitFor()
  const log = page.getByRole('log', { name: 'Log of moody' })
  await log.getByText('cannot find the database').first().waitFor()
  await log.getByText('lost the link').first().waitFor()
  // It is live: what happens now is added to it.
  await gateway.ask('POST', '/api/v0/servers/moody/disable')
  await log.getByText('disabled', { exact: true }).waitFor()
  assertClean(visit)
})

test('a server is disabled, enabled and removed, and the confirmation names what is removed', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tool-groups', { name: 'g', included_servers: ['s'] })
  const visit = await open(t, gateway, { hash: '#/servers/s' })
  const { page } = visit
  const details = page.getByRole('region', { name: 'Details' })
  const toggle = details.getByRole('switch', { name: 's enabled' })
  await toggle.click()
  await details.getByText('Disabled: not running, and hidden from agents').waitFor()
  assert.equal((await gateway.ask('GET', '/api/v0/servers/s')).status, 'disabled')
  await toggle.click()
  await details.getByText('connected', { exact: true }).waitFor()
  await page.getByRole('button', { name: 'Remove …' }).click()
  const dialog = page.getByRole('dialog', { name: 'Remove s?' })
  await dialog.getByText('37 tools, 3 prompts, 3 resources are also removed, including from the group g').waitFor()
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'hidden' })
  await page.getByRole('button', { name: 'Remove …' }).click()
  await dialog.getByRole('button', { name: 'Remove s' }).click()
  await page.getByRole('heading', { name: 'Add the first server' }).waitFor()
  assert.deepEqual(await gateway.ask('GET', '/api/v0/servers'), [])
  assertClean(visit)
})

test('a click on a switch counts while the click before is carried out', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  const visit = await open(t, gateway, { hash: '#/servers/s' })
  const { page } = visit
  const changes = []
  let release
  const held = new Promise((resolve) => (release = resolve))
  await page.route('**/servers/s/enabled', async (route) => {
    changes.push(route.request().postDataJSON().enabled)
    if (changes.length === 1) await held
    await route.continue()
  })
  const details = page.getByRole('region', { name: 'Details' })
  const toggle = (checked) => details.getByRole('switch', { name: 's enabled', checked })
  await toggle(true).click()
  await toggle(false).click()
  await toggle(true).waitFor()
  const enabled = page.waitForResponse(
    (answer) => answer.url().endsWith('/s/enabled') && answer.request().postDataJSON().enabled,
  )
  release()
  assert.equal((await enabled).status(), 200)
  assert.deepEqual(changes, [false, true])
  assert.equal((await gateway.ask('GET', '/api/v0/servers/s')).enabled, true)
  assertClean(visit)
})

test('a server is edited: everything is filled in, and secrets stay unless others are entered', async (t) => {
  const gateway = await startGateway(t)
  const { command, args } = fakeCommandWith(['--api-key', 'hunter22'], { instructions: 'Ask before you delete.' })
  await gateway.register({
    name: 'local',
    transport: 'stdio',
    command,
    args,
    env: { KEPT: 'lemur-0001', CHANGED: 'lemur-0002', GONE: 'lemur-0003' },
    description: 'Before',
  })
  const visit = await open(t, gateway, { hash: '#/servers/local' })
  const { page } = visit
  const details = page.getByRole('region', { name: 'Details' })
  await details.getByText('--api-key •••').waitFor()
  await details.getByText('Instructions for agents').click()
  await details.getByText('Ask before you delete.', { exact: true }).waitFor()
  await page.getByRole('link', { name: 'Edit', exact: true }).click()
  await page.getByRole('heading', { name: 'Edit local' }).waitFor()
  const line = page.getByLabel('Command', { exact: true })
  assert.match(await line.inputValue(), /--api-key •••$/)
  await page.getByText('Values shown as ••• are stored').waitFor()
  assert.equal(await page.getByLabel('Name of variable 2').inputValue(), 'GONE')
  assert.equal(await page.getByLabel('Value of variable 1').inputValue(), '')
  await page.getByLabel('Value of variable 1').fill('new-value')
  await page.getByRole('button', { name: 'Remove variable 2' }).click()
  await line.fill(`${await line.inputValue()} --verbose`)
  await page.getByText('More settings').click()
  assert.equal(await page.getByLabel('Description').inputValue(), 'Before')
  await page.getByLabel('Description').fill('After')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('local saved').waitFor()
  await details.getByText('After').waitFor()
  const [stored] = await gateway.ask('GET', '/api/v0/server_configs')
  assert.deepEqual(stored.args, [...args, '--verbose'])
  assert.deepEqual(stored.env, { KEPT: 'lemur-0001', CHANGED: 'new-value' })
  assert.equal(stored.description, 'After')
  assertClean(visit)
})

test('a change that does not connect is refused with the reason, and the server stays as it was', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t, { bearer: 'quokka-0003' })
  const url = `${fake.url}?key=tapir-0006`
  const before = { name: 'web', transport: 'streamable_http', url, bearer_token: 'quokka-0003' }
  await gateway.register(before)
  const visit = await open(t, gateway, { hash: '#/servers/web/edit', mayFail: ['500'] })
  const { page } = visit
  await page.getByText('Its credentials or query are stored').waitFor()
  assert.equal(await page.getByLabel('URL', { exact: true }).inputValue(), fake.url)
  await page.getByLabel('Bearer token').fill('wrong')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByRole('alert').getByText('web was not changed').waitFor()
  const config = async () => (await gateway.ask('GET', '/api/v0/server_configs'))[0]
  assert.equal((await config()).bearer_token, 'quokka-0003')
  await page.getByLabel('Bearer token').fill('')
  await page.getByText('More settings').click()
  await page.getByLabel('Call timeout (ms)').fill('1000')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('web saved').waitFor()
  assert.deepEqual(
    [(await config()).bearer_token, (await config()).url, (await config()).timeout_ms],
    ['quokka-0003', url, 1000],
  )
  assertClean(visit)
})

test('limits are edited: they are filled in, and only what changed is sent', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s', {}, { env: { TOKEN: 'lemur-0001' } }))
  const visit = await open(t, gateway, { hash: '#/servers/s/edit' })
  const { page } = visit
  const config = async () => (await gateway.ask('GET', '/api/v0/server_configs'))[0]
  const save = async () => {
    const sent = page.waitForRequest((request) => request.method() === 'PATCH')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    const body = (await sent).postDataJSON()
    await page.getByRole('heading', { name: 's', exact: true }).waitFor()
    return body
  }
  await page.getByText('More settings').click()
  await page.getByText('The transport stays stdio').waitFor()
  await page.getByLabel('Concurrent calls').fill('4')
  await page.getByLabel('Burst', { exact: true }).fill('5')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('The rate limit needs calls per minute').waitFor()
  await page.getByLabel('Calls per minute', { exact: true }).fill('600')
  await page.getByRole('button', { name: 'Add tool limit' }).click()
  await page.getByLabel('Tool of limit 1').fill('echo')
  await page.getByText('The limit of echo needs calls per minute').waitFor()
  await page.getByLabel('Calls per minute of limit 1').fill('60')
  await assertAccessible(page, 'limits of a server')
  await picture(page, 'server-limits')
  assert.deepEqual(await save(), {
    max_concurrency: 4,
    rate_limit: { calls_per_minute: 600, burst: 5 },
    tool_limits: { echo: { calls_per_minute: 60 } },
  })
  assert.deepEqual((await config()).env, { TOKEN: 'lemur-0001' })
  await page.getByRole('link', { name: 'Edit', exact: true }).click()
  await page.getByText('More settings').click()
  assert.equal(await page.getByLabel('Concurrent calls').inputValue(), '4')
  assert.equal(await page.getByLabel('Calls per minute', { exact: true }).inputValue(), '600')
  assert.equal(await page.getByLabel('Tool of limit 1').inputValue(), 'echo')
  await page.getByRole('button', { name: 'Remove limit 1' }).click()
  await page.getByLabel('Calls per minute', { exact: true }).fill('')
  await page.getByLabel('Burst', { exact: true }).fill('')
  assert.deepEqual(await save(), { rate_limit: null, tool_limits: { echo: null } })
  const { max_concurrency, rate_limit, tool_limits } = await config()
  assert.deepEqual([max_concurrency, rate_limit, tool_limits], [4, undefined, undefined])
  assertClean(visit)
})

test('the transport of a server behind a URL is changed, and the page says what has to be entered again', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t)
  const headers = { 'X-Key': 'dugong-0004' }
  await gateway.register({ name: 'web', transport: 'streamable_http', url: fake.url, headers })
  const visit = await open(t, gateway, { hash: '#/servers/web/edit' })
  const { page } = visit
  await page.getByText('More settings').click()
  await page.getByLabel('Transport').selectOption('HTTP+SSE (legacy servers)')
  await page.getByText('Enter them again.').waitFor()
  assert.equal(await page.getByLabel('Name of header 1').count(), 0)
  await page.getByLabel('Transport').selectOption('Streamable HTTP')
  assert.equal(await page.getByLabel('Name of header 1').inputValue(), 'X-Key')
  await page.getByLabel('Transport').selectOption('HTTP+SSE (legacy servers)')
  await page.getByLabel('URL', { exact: true }).fill(fake.url.replace(/\/mcp$/, '/sse'))
  await page.getByRole('button', { name: 'Add header' }).click()
  await page.getByLabel('Name of header 1').fill('X-Key')
  await page.getByLabel('Value of header 1').fill('dugong-0005')
  await page.getByRole('button', { name: 'Save', exact: true }).click()
  await page.getByText('web saved').waitFor()
  const [stored] = await gateway.ask('GET', '/api/v0/server_configs')
  assert.deepEqual([stored.transport, stored.headers], ['sse', { 'X-Key': 'dugong-0005' }])
  assertClean(visit)
})
