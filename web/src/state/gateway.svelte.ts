// The gateway's data for all pages, kept up to date by its event stream. Loaded data stays while the connection is lost;
// `isLive` says whether it is up to date.

import { api, paths, sentence } from '../api/client'
import type { Diagnostics, EmptyState, Group, Overview, Prompt, Resource, Server, Template, Tool } from '../api/client'
import { without } from '../logic/record'

const OVERVIEW_MS = 10_000

/** A list or record that may still be loading or may have failed to load. */
class Loaded<T> {
  data = $state.raw<T | undefined>(undefined)
  error = $state('')

  constructor(private readonly load: () => Promise<T>) {}

  private running: Promise<void> | undefined
  private again = false

  /** Loads the data. A call during a load starts one more load after it, since the running one may miss a change. */
  refresh(): Promise<void> {
    if (this.running) {
      this.again = true
      return this.running
    }
    this.running = this.run().finally(() => (this.running = undefined))
    return this.running
  }

  private async run(): Promise<void> {
    do {
      this.again = false
      try {
        this.data = await this.load()
        this.error = ''
      } catch (error) {
        this.error = sentence(error)
      }
    } while (this.again)
  }
}

interface Listed<T> {
  items: T[]
  emptyState: EmptyState | null | undefined
}

interface ServerStatus {
  name: string
  status: string
  status_reason: string
}

class Gateway {
  overview = new Loaded<Overview>(api.overview)
  diagnostics = new Loaded<Diagnostics>(api.diagnostics)
  servers = new Loaded<Listed<Server>>(async () => {
    const { servers, empty_state } = await api.servers()
    return { items: servers, emptyState: empty_state }
  })
  tools = new Loaded<Listed<Tool>>(async () => {
    const { tools, empty_state } = await api.tools()
    return { items: tools, emptyState: empty_state }
  })
  prompts = new Loaded<Listed<Prompt>>(async () => {
    const { prompts, empty_state } = await api.prompts()
    return { items: prompts, emptyState: empty_state }
  })
  resources = new Loaded<Listed<Resource> & { templates: Template[] }>(async () => {
    const [{ resources, empty_state }, templates] = await Promise.all([api.resources(), api.templates()])
    return { items: resources, templates, emptyState: empty_state }
  })
  groups = new Loaded<Listed<Group>>(async () => {
    const { tool_groups, empty_state } = await api.groups()
    return { items: tool_groups, emptyState: empty_state }
  })

  /** Whether the event stream is connected. */
  isLive = $state(true)
  /** The current step of connecting, by server; servers that are being added are included. */
  steps = $state<Record<string, string>>({})

  private retry: ReturnType<typeof setTimeout> | undefined

  start(): void {
    void this.refreshAll()
    this.listen()
    // Whether calls can be recorded changes without events. A page that nobody sees asks nothing.
    setInterval(() => {
      if (this.isLive && !document.hidden) void this.overview.refresh()
    }, OVERVIEW_MS)
  }

  async refreshAll(): Promise<void> {
    const all = [this.overview, this.servers, this.tools, this.prompts, this.resources, this.groups]
    await Promise.all(all.map((one) => one.refresh()))
  }

  server(name: string): Server | undefined {
    return this.servers.data?.items.find((server) => server.name === name)
  }

  private listen(): void {
    const source = new EventSource(paths.events)
    let opened = false
    source.onopen = () => {
      // Changes during the interruption were missed.
      if (opened || !this.isLive) void this.refreshAll()
      opened = true
      this.isLive = true
    }
    source.onerror = () => {
      this.isLive = false
      // After some errors browsers do not reconnect, so this does.
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(this.retry)
        this.retry = setTimeout(() => this.listen(), 1000)
      }
    }
    source.addEventListener('changed', (event) => {
      const { changed } = JSON.parse((event as MessageEvent<string>).data) as { changed: string[] }
      void this.overview.refresh()
      if (this.diagnostics.data) void this.diagnostics.refresh()
      const lists: Record<string, Loaded<unknown>> = {
        servers: this.servers,
        tools: this.tools,
        prompts: this.prompts,
        resources: this.resources,
        tool_groups: this.groups,
      }
      for (const noun of changed) void lists[noun]?.refresh()
    })
    source.addEventListener('status', (event) => {
      this.hear(JSON.parse((event as MessageEvent<string>).data) as ServerStatus)
    })
  }

  private hear({ name, status, status_reason }: ServerStatus): void {
    const others = without(this.steps, name)
    this.steps = status === 'connecting' ? { ...others, [name]: status_reason } : others
    const list = this.servers.data
    if (!list?.items.some((server) => server.name === name && server.status !== status)) {
      if (status !== 'connecting') void this.servers.refresh()
      return
    }
    const items = list.items.map((server) => (server.name === name ? { ...server, status, status_reason } : server))
    this.servers.data = { ...list, items }
    void this.overview.refresh()
    // Standard error and counts are in the complete record.
    if (status !== 'connecting') void this.servers.refresh()
  }
}

export const gateway = new Gateway()
