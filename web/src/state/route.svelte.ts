// The current location: the part of the address after `#`, so that links can be shared and survive a reload.

import { queryText } from '../logic/query'

export type PageName = 'overview' | 'activity' | 'servers' | 'tools' | 'groups' | 'prompts' | 'resources' | 'system'

const PAGES: PageName[] = ['overview', 'activity', 'servers', 'tools', 'groups', 'prompts', 'resources', 'system']

export interface Place {
  page: PageName
  /** Whether the address names no page. */
  isUnknown: boolean
  /** The open item of the page, decoded. */
  rest: string[]
  query: URLSearchParams
}

function parse(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2)
  const [first = '', ...rest] = path.split('/').filter(Boolean).map(decode)
  const page = PAGES.find((name) => name === first)
  const isUnknown = page === undefined && first !== ''
  return { page: page ?? 'overview', isUnknown, rest, query: new URLSearchParams(query) }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

export function href(page: PageName, ...rest: string[]): string {
  const parts = page === 'overview' ? rest : [page, ...rest]
  return `#/${parts.map(encodeURIComponent).join('/')}`
}

/** The address of a page with a query. */
export function hrefWith(query: Record<string, string>, page: PageName, ...rest: string[]): string {
  return href(page, ...rest) + queryText(query)
}

class Route {
  place = $state.raw(parse(location.hash))

  constructor() {
    addEventListener('hashchange', () => (this.place = parse(location.hash)))
  }

  go(address: string): void {
    location.hash = address
  }

  /** Changes the query without a new entry in the history. */
  setQuery(query: Record<string, string>): void {
    const address = hrefWith(query, this.place.page, ...this.place.rest)
    history.replaceState(null, '', address)
    this.place = parse(address)
  }
}

export const route = new Route()
