// Names of servers and groups: validation, and a suggestion for a new server.

/** The gateway's rules for names, to show mistakes while typing. Empty if the name is valid. */
export function checkServerName(name: string): string {
  if (name === '') return 'is required'
  if (name.length > 64) return 'must have at most 64 characters'
  if (!/^[a-zA-Z0-9_-]+$/.test(name)) return "may contain only letters, digits, '-' and '_'"
  if (name.includes('__')) return "must not contain '__', which separates server and tool"
  if (name.endsWith('_')) return "must not end in '_'"
  return ''
}

export function checkGroupName(name: string): string {
  if (name === '') return 'is required'
  if (name.length > 64) return 'must have at most 64 characters'
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_-]*$/.test(name))
    return "must begin with a letter or digit and have only letters, digits, '-' and '_'"
  return ''
}

export function checkUrl(url: string): string {
  if (url === '') return 'is required'
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (!parsed || !/^https?:$/.test(parsed.protocol)) return 'must begin with http:// or https://'
  return parsed.host === '' ? 'must name a host' : ''
}

/** `npx -y @modelcontextprotocol/server-everything` gives `everything`, `https://mcp.deepwiki.com/mcp` `deepwiki`. */
export function guessName(source: string[]): string {
  const url = source.find((word) => /^https?:\/\//.test(word))
  if (url) return clean(URL.canParse(url) ? fromHost(new URL(url).hostname) : '')
  const words = source.slice(1).filter((word) => !word.startsWith('-') && !word.includes('='))
  const word = words.find((one) => /mcp|server/i.test(one)) ?? words[0] ?? source[0] ?? ''
  const last =
    word
      .replace(/[@=]\d[^/]*$/, '')
      .replace(/\/+$/, '')
      .split('/')
      .pop() ?? ''
  return clean(last.replace(/\.[a-z0-9]{1,4}$/i, ''))
}

function fromHost(host: string): string {
  const parts = host.split('.').filter((part) => !/^(www|mcp|api|com|org|net|io|dev|app|ai|co)$/.test(part))
  return parts[0] ?? host
}

function clean(text: string): string {
  const plain = text.replace(/^(mcp-)?server[-_]|^mcp[-_]|[-_](mcp|server)([-_]server)?$/gi, '')
  return (plain || text)
    .replace(/[^a-zA-Z0-9-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 64)
}
