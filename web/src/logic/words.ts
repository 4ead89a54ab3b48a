// Formats counts, times and sizes, and suggests what to do about the reason of a failure.

export function count(number: number, noun: string): string {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`
}

/** The text with a capital first letter. */
export function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(Math.round(ms), 1)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`
}

export function ago(then: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(then)) / 1000))
  if (seconds < 5) return 'just now'
  if (seconds < 60) return `${seconds} s ago`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`
  return `${Math.floor(seconds / 86_400)} d ago`
}

/** The time of day, in the time zone of the browser. */
export function clock(then: string): string {
  return new Date(then).toLocaleTimeString('en', { hourCycle: 'h23' })
}

/** The day, in the time zone of the browser. */
export function day(then: string): string {
  return new Date(then).toLocaleDateString('en', { month: 'short', day: 'numeric' })
}

export function uptime(seconds: number): string {
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ] as const
  const first = parts.findIndex(([number]) => number > 0)
  return parts
    .slice(first < 0 ? 3 : first, (first < 0 ? 3 : first) + 2)
    .map(([number, unit]) => `${number} ${unit}`)
    .join(' ')
}

export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} kB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`
}

/** Advice for the reason of a failure. Empty if there is none. */
export function remedy(reason: string): string {
  const known: [RegExp, string][] = [
    [/authoriz|oauth/i, 'Sign in to the server again.'],
    [
      /no such file|not found.*(command|program)|command not found|cannot start|could not be started/i,
      'Install the program, or enter its full path. The gateway uses the PATH that it was started with.',
    ],
    [/\b401\b|bearer_token/i, 'Set a bearer token or headers.'],
    [/\b403\b/, 'The server accepted the token but denied access. Check the permissions of the token.'],
    [/\b404\b/, 'Check the path of the URL. Many servers use /mcp or /sse.'],
    [
      /refused|unreachable|resolve|dns|connect/i,
      'Check that the server is running and that the URL is correct, then retry.',
    ],
    [
      /did not finish|timed? ?out|within \d/i,
      'Retry. If the server always starts slowly, start the gateway with a larger MCP_SERVER_INIT_REQ_TIMEOUT_SEC.',
    ],
    [/exit|ended|keeps ending/i, 'Its last output is below. A common cause is a missing environment variable.'],
  ]
  return known.find(([pattern]) => pattern.test(reason))?.[1] ?? ''
}
