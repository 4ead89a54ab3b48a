// The query of an address in the dashboard.

/** `?` and the values that are not empty; nothing if all are. */
export function queryText(query: Record<string, string>): string {
  const kept = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ''))
  return kept.size > 0 ? `?${kept}` : ''
}
