// Search by parts of words: every word of the query must occur in an item's text. Texts are normalized once, so that a
// thousand tools can be filtered while typing.

export interface Indexed<T> {
  item: T
  /** The name, which has the most weight. */
  name: string
  text: string
}

export function fold(text: string): string {
  return text.toLowerCase().normalize('NFKD').replace(/\p{M}/gu, '')
}

export function index<T>(items: T[], name: (item: T) => string, text: (item: T) => string): Indexed<T>[] {
  return items.map((item) => {
    const folded = fold(name(item))
    return { item, name: folded, text: `${folded} ${fold(text(item))}` }
  })
}

/** The matching items, best first; all items in their order if the query is empty. */
export function find<T>(indexed: Indexed<T>[], query: string): T[] {
  const words = fold(query).split(/\s+/).filter(Boolean)
  if (words.length === 0) return indexed.map((one) => one.item)
  const found: { item: T; rank: number }[] = []
  for (const one of indexed) {
    if (!words.every((word) => one.text.includes(word))) continue
    found.push({ item: one.item, rank: rank(one.name, words) })
  }
  // Sorting is stable: items with the same rank keep their order.
  return found.sort((a, b) => a.rank - b.rank).map((one) => one.item)
}

/** Lower is better: the name equals it, starts with it, has a part that starts with it, contains it, or only the text does. */
function rank(name: string, words: string[]): number {
  const parts = name.split(/[^\p{L}\p{N}]+/u)
  const ranks = words.map((word): number => {
    if (name === word) return 0
    if (parts.includes(word)) return 1
    if (name.startsWith(word)) return 2
    if (parts.some((part) => part.startsWith(word))) return 3
    return name.includes(word) ? 4 : 5
  })
  return ranks.reduce((sum, one) => sum + one, 0)
}

/** All property names of a schema at any depth, with their descriptions. */
export function parameterNames(schema: unknown, depth = 0): string {
  if (typeof schema !== 'object' || schema === null || depth > 6) return ''
  const { properties, items } = schema as { properties?: unknown; items?: unknown }
  const own = typeof properties === 'object' && properties !== null ? Object.entries(properties) : []
  const inner = own.map(([name, property]) => `${name} ${parameterNames(property, depth + 1)}`)
  return [...inner, items ? parameterNames(items, depth + 1) : ''].join(' ').trim()
}
