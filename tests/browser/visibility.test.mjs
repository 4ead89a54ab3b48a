// What agents see of a tool or a server at each endpoint, why not, and the way out.

import { test } from 'node:test'
import { assertAccessible, assertClean, open, picture } from './browser.mjs'
import { startFake, startGateway, stdio } from './gateway.mjs'

const panelOf = (page) => page.getByRole('region', { name: 'Visibility' })

test('a tool says at which endpoints agents see it, why not, and leads to the way out', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tool-groups', { name: 'few', included_tools: ['s__echo'] })
  const visit = await open(t, gateway, { hash: '#/tools/s__add' })
  const { page } = visit
  const panel = panelOf(page)
  await panel.getByText('Agents see this tool').waitFor()
  await panel.getByLabel('Endpoint').selectOption('Server s')
  await panel.getByText('Agents see this tool').waitFor()
  await panel.getByLabel('Endpoint').selectOption('Group few')
  await panel.getByText('Agents do not see this tool').waitFor()
  await panel.getByText('The group includes neither the tool (included_tools) nor the server').waitFor()
  await assertAccessible(page, 'a hidden tool')
  await picture(page, 'visibility-tool')
  await panel.getByRole('link', { name: 'Edit group few' }).click()
  await page.getByRole('heading', { name: /few/ }).waitFor()
  assertClean(visit)
})

test('a disabled tool shows the cause without being asked, and is enabled there', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tools/disable?entity=s__add')
  const visit = await open(t, gateway, { hash: '#/tools/s__add' })
  const { page } = visit
  const panel = panelOf(page)
  await panel.getByText('Agents do not see this tool').waitFor()
  await panel.getByText('The tool is disabled').waitFor()
  await panel.getByRole('button', { name: 'Enable tool' }).press('Enter')
  await panel.getByText('Agents see this tool').waitFor()
  await page
    .getByRole('region', { name: 'Details' })
    .getByRole('switch', { name: 's__add enabled', checked: true })
    .waitFor()
  assertClean(visit)
})

test('a server says how many of its tools agents see, and which not and why', async (t) => {
  const gateway = await startGateway(t)
  await gateway.register(stdio('s'))
  await gateway.ask('POST', '/api/v0/tools/disable?entity=s__echo')
  await gateway.ask('POST', '/api/v0/tool-groups', {
    name: 'most',
    included_servers: ['s'],
    excluded_tools: ['s__add'],
  })
  await gateway.register(stdio('other', { tools: [], tool_count: 1 }))
  await gateway.ask('POST', '/api/v0/tool-groups', { name: 'none', included_servers: ['other'] })
  const visit = await open(t, gateway, { hash: '#/servers/s' })
  const { page } = visit
  const panel = panelOf(page)
  await panel.getByText('Agents see 36 of 37 tools').waitFor()
  await panel.getByLabel('Endpoint').selectOption('Group most')
  await panel.getByText('Agents see 35 of 37 tools').waitFor()
  await panel.getByText('2 hidden tools').click()
  await panel.getByText('The group excludes the tool').waitFor()
  await assertAccessible(page, 'a server with hidden tools')
  await picture(page, 'visibility-server')
  await panel.getByRole('button', { name: 'Enable tool' }).click()
  await panel.getByText('Agents see 36 of 37 tools').waitFor()
  await panel.getByRole('link', { name: 's__add' }).waitFor()
  await panel.getByLabel('Endpoint').selectOption('Group none')
  await panel.getByText('Agents do not see this server').waitFor()
  await panel.getByRole('link', { name: 'Edit group none' }).waitFor()
  await panel.getByLabel('Endpoint').selectOption('All servers')
  await gateway.ask('POST', '/api/v0/servers/s/disable')
  await panel.getByText('The server "s" is disabled').waitFor()
  await panel.getByRole('button', { name: 'Enable s' }).click()
  await panel.getByText('Agents see all 37 tools').waitFor()
  assertClean(visit)
})

test('tools of a server that failed say so, also those that it could never list', async (t) => {
  const gateway = await startGateway(t)
  const fake = await startFake(t)
  await gateway.register({ name: 'web', transport: 'streamable_http', url: fake.url })
  await gateway.register({ name: 'new', transport: 'stdio', command: '/no/such/program', keep_failed: true })
  await fake.stop()
  await gateway.ask('POST', '/api/v0/servers/web/refresh').catch(() => {})
  const visit = await open(t, gateway, { hash: '#/tools/web__echo' })
  const { page } = visit
  await panelOf(page).getByText('The server "web" failed, so calls fail').waitFor()
  await page.goto(`${gateway.url}/#/tools/new__search`)
  await page.getByText('There is no tool “new__search”.').waitFor()
  await panelOf(page).getByText('The server "new" failed before it could list its tools').waitFor()
  await picture(page, 'visibility-failed')
  await panelOf(page).getByRole('link', { name: 'Open new' }).click()
  await page.getByRole('alert').filter({ hasText: 'new failed' }).waitFor()
  assertClean(visit)
})
