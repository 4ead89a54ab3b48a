// What a person can do about each cause that hides a tool or a server from agents.

/** The endpoint that agents use: of a group, of a server, or of everything. */
export interface Endpoint {
  group?: string
  server?: string
}

/** Something to enable, or the page on which the cause is changed or explained. */
export type Remedy =
  | { kind: 'enable'; noun: 'servers' | 'tools'; name: string; label: string }
  | { kind: 'page'; page: 'groups' | 'servers'; rest: string[]; label: string }

interface Hidden {
  /** The full name of a tool, or the name of a server. */
  name: string
  server: string
  endpoint: Endpoint
  /** Whether the person is on the page of the server. */
  isServerPage: boolean
}

export function remedyFor(code: string, { name, server, endpoint, isServerPage }: Hidden): Remedy | undefined {
  switch (code) {
    case 'tool_disabled':
      return { kind: 'enable', noun: 'tools', name, label: 'Enable tool' }
    case 'server_disabled':
      return { kind: 'enable', noun: 'servers', name: server, label: `Enable ${server}` }
    case 'not_in_group':
    case 'excluded_from_group': {
      const group = endpoint.group ?? ''
      return { kind: 'page', page: 'groups', rest: [group, 'edit'], label: `Edit group ${group}` }
    }
    case 'server_failed':
    case 'server_connecting':
    case 'server_degraded':
    case 'unknown_tool':
      return isServerPage ? undefined : { kind: 'page', page: 'servers', rest: [server], label: `Open ${server}` }
    case 'unknown_server':
      return { kind: 'page', page: 'servers', rest: ['add'], label: 'Add a server' }
    default:
      return undefined
  }
}
