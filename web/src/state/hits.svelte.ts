// What the search finds: pages, actions, and everything that is registered.

import { api, sentence } from '../api/client'
import { parameterNames } from '../logic/search'
import { gateway } from './gateway.svelte'
import { notices } from './notices.svelte'
import { href, route } from './route.svelte'
import { appearance, type Theme } from './theme.svelte'

export interface Hit {
  kind: 'page' | 'action' | 'server' | 'tool' | 'group' | 'prompt' | 'resource' | 'template'
  name: string
  about: string
  /** More words by which it is found. */
  text: string
  open: () => void
}

const to = (address: string) => () => route.go(address)

const PAGES: Hit[] = [
  {
    kind: 'page',
    name: 'Overview',
    about: 'status, the last hour, connecting an agent, failures',
    text: 'home',
    open: to(href('overview')),
  },
  {
    kind: 'page',
    name: 'Activity',
    about: 'calls as they happen, and earlier ones',
    text: 'history records calls log slow denied failed',
    open: to(href('activity')),
  },
  { kind: 'page', name: 'Servers', about: 'all servers and their status', text: '', open: to(href('servers')) },
  { kind: 'page', name: 'Tools', about: 'all tools', text: 'run try', open: to(href('tools')) },
  { kind: 'page', name: 'Groups', about: 'groups and their endpoints', text: '', open: to(href('groups')) },
  { kind: 'page', name: 'Prompts', about: 'all prompts', text: '', open: to(href('prompts')) },
  { kind: 'page', name: 'Resources', about: 'all resources and templates', text: '', open: to(href('resources')) },
  {
    kind: 'page',
    name: 'System',
    about: 'version, limits, troubleshooting',
    text: 'help hints keyboard shortcuts',
    open: to(href('system')),
  },
]

const theme = (chosen: Theme, name: string): Hit => ({
  kind: 'action',
  name,
  about: 'change the appearance',
  text: 'color colour mode',
  open: () => appearance.choose(chosen),
})

const ACTIONS: Hit[] = [
  {
    kind: 'action',
    name: 'Add a server',
    about: 'command or URL',
    text: 'new register connect',
    open: to(href('servers', 'add')),
  },
  {
    kind: 'action',
    name: 'Import servers',
    about: 'from the configuration of a client',
    text: 'paste claude cursor vscode',
    open: to(`${href('servers', 'add')}?by=paste`),
  },
  {
    kind: 'action',
    name: 'New group',
    about: 'select tools, get an endpoint',
    text: 'create',
    open: to(href('groups', 'new')),
  },
  theme('system', 'System theme'),
  theme('light', 'Light theme'),
  theme('dark', 'Dark theme'),
]

/** What is offered before anything is typed. */
export const suggestions: Hit[] = [...ACTIONS.slice(0, 3), ...PAGES]

export function allHits(): Hit[] {
  const servers = gateway.servers.data?.items ?? []
  return [
    ...servers.map((one): Hit => {
      const { command_line, target, description } = one.config_summary
      const text = `${command_line} ${target} ${description}`
      return { kind: 'server', name: one.name, about: one.status, text, open: to(href('servers', one.name)) }
    }),
    ...(gateway.tools.data?.items ?? []).map((one): Hit => ({
      kind: 'tool',
      name: one.canonical_name,
      about: one.description,
      text: `${one.description} ${parameterNames(one.input_schema)}`,
      open: to(href('tools', one.canonical_name)),
    })),
    ...(gateway.groups.data?.items ?? []).map((one): Hit => ({
      kind: 'group',
      name: one.name,
      about: one.description,
      text: one.description,
      open: to(href('groups', one.name)),
    })),
    ...(gateway.prompts.data?.items ?? []).map((one): Hit => ({
      kind: 'prompt',
      name: one.canonical_name,
      about: one.description,
      text: one.description,
      open: to(href('prompts', one.canonical_name)),
    })),
    ...(gateway.resources.data?.items ?? []).map((one): Hit => ({
      kind: 'resource',
      name: one.name || one.uri,
      about: one.uri,
      text: `${one.uri} ${one.description}`,
      open: to(href('resources', one.server, one.uri)),
    })),
    ...(gateway.resources.data?.templates ?? []).map((one): Hit => ({
      kind: 'template',
      name: one.name || one.uri_template,
      about: one.uri_template,
      text: `${one.uri_template} ${one.description}`,
      open: to(href('resources', one.server, one.uri_template)),
    })),
    ...PAGES,
    ...ACTIONS,
    ...servers.flatMap(({ name, enabled }) => actionsOf(name, enabled)),
  ]
}

function actionsOf(server: string, enabled: boolean): Hit[] {
  const action = (name: string, about: string, done: string, run: () => Promise<unknown>): Hit => ({
    kind: 'action',
    name,
    about,
    text: '',
    open: () => void attempt(name, done, run),
  })
  const edit: Hit = {
    kind: 'action',
    name: `Edit ${server}`,
    about: 'change its settings',
    text: 'change',
    open: to(href('servers', server, 'edit')),
  }
  const refresh = () => api.refreshServer(server)
  return enabled
    ? [
        edit,
        action(`Refresh ${server}`, 'read its lists again', `${server} refreshed`, refresh),
        action(`Disable ${server}`, 'stop it and hide it from agents', `${server} disabled`, () =>
          api.switch('servers', server, false),
        ),
      ]
    : [
        edit,
        action(`Enable ${server}`, 'start it and show it to agents', `${server} enabled`, () =>
          api.switch('servers', server, true),
        ),
      ]
}

async function attempt(name: string, done: string, run: () => Promise<unknown>): Promise<void> {
  try {
    await run()
    notices.tell('done', done)
    await gateway.servers.refresh()
  } catch (error) {
    notices.tell('refused', `${name} failed: ${sentence(error)}`)
  }
}
