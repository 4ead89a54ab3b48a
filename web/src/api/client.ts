// The gateway's API, typed by its own OpenAPI document. Every failure is an `ApiError` with the gateway's error message.

import { fetchCurrent } from './epoch'
import type { components } from './schema'

type Schemas = components['schemas']

export type Overview = Schemas['Overview']
export type Diagnostics = Schemas['Diagnostics']
export type Limit = Schemas['DashboardLimit']
export type Server = Schemas['DashboardServer']
export type ServerDetails = Schemas['ServerDetails']
export type LogLine = Schemas['LogLine']
export type Tool = Schemas['DashboardTool']
export type Prompt = Schemas['DashboardPrompt']
export type Resource = Schemas['DashboardResource']
export type Template = Schemas['TemplateRecord']
export type Group = Schemas['DashboardGroup']
export type GroupInput = Schemas['GroupInput']
export type EmptyState = Schemas['EmptyState']
export type RegistrationInput = Schemas['RegistrationInput']
export type ConnectedClient = Schemas['ConnectedClient']
export type RateLimit = Schemas['RateLimit']
export type ToolResult = Schemas['ToolResult']
export type RenderedPrompt = Schemas['RenderedPrompt']
export type Candidate = Schemas['ImportCandidate']
export type Visibility = Schemas['VisibilityBody']
export type Remark = Schemas['RemarkBody']
export type Stats = Schemas['Stats']
export type ImportOutcome = Schemas['ImportOutcome']

export type Call = Schemas['Call']

/** A call with its arguments and its result, where they are kept. */
export type CallDetails = Call & { arguments?: unknown; result?: unknown }

/** The page to open if a server requires a sign-in. */
export type Authorization = Schemas['PendingAuthorization']

export class ApiError extends Error {
  constructor(
    message: string,
    /** 0 if there was no response. */
    readonly status: number,
  ) {
    super(message)
  }
}

interface Options {
  body?: unknown
  signal?: AbortSignal
}

async function ask<T>(method: string, path: string, { body, signal }: Options = {}): Promise<T> {
  const init: RequestInit = { method, headers: { accept: 'application/json' } }
  if (body !== undefined) {
    init.body = typeof body === 'string' ? body : JSON.stringify(body)
    init.headers = { ...init.headers, 'content-type': 'application/json' }
  }
  if (signal) init.signal = signal
  const answer = await reach(path, init)
  const text = await answer.text()
  if (!answer.ok) throw refusal(text, answer.status)
  return JSON.parse(text) as T
}

export async function reach(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetchCurrent(path, init)
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError('the gateway does not answer; is it still running?', 0)
  }
}

export function refusal(text: string, status: number): ApiError {
  try {
    const body = JSON.parse(text) as { error?: unknown }
    if (typeof body.error === 'string') return new ApiError(body.error, status)
  } catch {
    // Not a response of the gateway; something in between answered, such as a proxy.
  }
  return new ApiError(`unexpected answer with status ${status}`, status)
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

const base = '/api/dashboard'
const part = encodeURIComponent

export const api = {
  overview: () => ask<Overview>('GET', `${base}/overview`),
  diagnostics: () => ask<Diagnostics>('GET', `${base}/diagnostics`),
  servers: () => ask<Schemas['DashboardServers']>('GET', `${base}/servers`),
  tools: () => ask<Schemas['DashboardTools']>('GET', `${base}/tools`),
  prompts: () => ask<Schemas['DashboardPrompts']>('GET', `${base}/prompts`),
  resources: () => ask<Schemas['DashboardResources']>('GET', `${base}/resources`),
  templates: () => ask<Template[]>('GET', '/api/v0/resource_templates'),
  group: (name: string) => ask<Group>('GET', `${base}/tool-groups/${part(name)}`),
  groups: () => ask<Schemas['DashboardGroups']>('GET', `${base}/tool-groups`),

  addServer: (input: RegistrationInput, signal: AbortSignal) =>
    ask<Schemas['DashboardServerAdded'] | Schemas['AuthorizationRequired']>('POST', `${base}/servers`, {
      body: input,
      signal,
    }),
  serverDetails: (name: string) => ask<ServerDetails>('GET', `${base}/servers/${part(name)}`),
  amendServer: (name: string, changes: Record<string, unknown>, signal: AbortSignal) =>
    ask<Schemas['DashboardServerAdded'] | Schemas['AuthorizationRequired']>('PATCH', `${base}/servers/${part(name)}`, {
      body: changes,
      signal,
    }),
  removeServer: (name: string) => ask<unknown>('DELETE', `${base}/servers/${part(name)}`),
  refreshServer: (name: string) => ask<Server>('POST', `${base}/servers/${part(name)}/refresh`),
  reauthorize: (name: string) =>
    ask<Schemas['AuthorizationRequired']>('POST', `${base}/servers/${part(name)}/reauthorize`, { body: {} }),
  session: (id: string) => ask<Schemas['SessionRecord']>('GET', `${base}/oauth/session/${part(id)}`),
  switch: (kind: 'servers' | 'tools' | 'prompts', name: string, enabled: boolean) =>
    ask<Schemas['Switched']>('PATCH', `${base}/${kind}/${part(name)}/enabled`, { body: { enabled } }),

  calls: (parameters: URLSearchParams, signal: AbortSignal) =>
    ask<{ calls: Call[]; next: string | null }>('GET', `/api/v0/calls?${parameters}`, { signal }),
  call: (id: string, signal: AbortSignal) => ask<CallDetails>('GET', `/api/v0/calls/${part(id)}`, { signal }),
  stats: (parameters: Record<string, string>) => ask<Stats>('GET', `/api/v0/stats?${new URLSearchParams(parameters)}`),

  why: (name: string, endpoint: { group?: string; server?: string }) =>
    ask<Visibility>('GET', `/api/v0/tools/why?${new URLSearchParams({ name, ...endpoint })}`),

  previewImport: (text: string) => ask<Schemas['ImportPreview']>('POST', `${base}/import/preview`, { body: { text } }),
  applyImport: (text: string, names: string[]) =>
    ask<Schemas['Imported']>('POST', `${base}/import`, { body: { text, names } }),

  createGroup: (input: GroupInput) => ask<Group>('POST', `${base}/tool-groups`, { body: input }),
  replaceGroup: (name: string, input: GroupInput) =>
    ask<Group>('PUT', `${base}/tool-groups/${part(name)}`, { body: input }),
  deleteGroup: (name: string) => ask<unknown>('DELETE', `${base}/tool-groups/${part(name)}`),

  /** Answers a question of a running call; returns the keys that are still open. */
  answer: (call: string, key: string, answer: unknown) =>
    ask<Schemas['OpenInput']>('POST', `/api/v0/tools/invoke/${part(call)}/input`, {
      body: { responses: { [key]: answer } },
    }),

  render: (name: string, given: Record<string, string>) =>
    ask<RenderedPrompt>('POST', `${base}/prompts/${part(name)}/render`, { body: { arguments: given } }),
  read: (uri: string, signal: AbortSignal) =>
    ask<Schemas['ResourceContents']>('POST', `${base}/resources/read`, { body: { uri }, signal }),
}

export const paths = {
  events: `${base}/events`,
  calls: (parameters: URLSearchParams) => `/api/v0/calls/stream?${parameters}`,
  log: (server: string) => `/api/v0/servers/${part(server)}/logs?follow=true`,
  invoke: (tool: string) => `${base}/tools/${part(tool)}/invoke?log_level=info`,
}
