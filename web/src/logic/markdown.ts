// Reads the part of Markdown that descriptions and results use: headings, paragraphs, lists, quotes, code, emphasis and
// links. The result is a tree that the page renders as elements of its own: HTML in the text stays text.

export type Inline =
  { kind: 'text' | 'code' | 'strong' | 'emphasis'; text: string } | { kind: 'link'; text: string; address: string }

export type Block =
  | { kind: 'paragraph' | 'heading' | 'quote'; inlines: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'list'; isOrdered: boolean; items: Inline[][] }

const ITEM = /^\s{0,3}(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/
const HEADING = /^#{1,6}\s+(.+?)\s*#*$/
const FENCE = /^\s{0,3}(```+|~~~+)/

export function blocks(text: string): Block[] {
  const lines = text.replace(/\r\n?/g, '\n').split('\n')
  const found: Block[] = []
  let at = 0
  while (at < lines.length) {
    const line = lines[at] ?? ''
    const fence = FENCE.exec(line)?.[1]
    if (line.trim() === '') {
      at++
    } else if (fence !== undefined) {
      const end = lines.findIndex((other, index) => index > at && other.trim().startsWith(fence))
      const last = end < 0 ? lines.length : end
      found.push({ kind: 'code', text: lines.slice(at + 1, last).join('\n') })
      at = last + 1
    } else if (HEADING.test(line)) {
      found.push({ kind: 'heading', inlines: inlines(HEADING.exec(line)?.[1] ?? '') })
      at++
    } else if (ITEM.test(line)) {
      const items: string[] = []
      const isOrdered = ITEM.exec(line)?.[1] !== undefined
      for (; at < lines.length && (lines[at] ?? '').trim() !== ''; at++) {
        const item = ITEM.exec(lines[at] ?? '')
        if (item && (item[1] !== undefined) !== isOrdered) break
        if (!item && isOther(lines[at] ?? '')) break
        if (item) items.push(item[2] ?? '')
        else items.push(`${items.pop() ?? ''}\n${(lines[at] ?? '').trim()}`)
      }
      found.push({ kind: 'list', isOrdered, items: items.map(inlines) })
    } else {
      const isQuote = /^\s{0,3}>/.test(line)
      const own: string[] = []
      for (; at < lines.length && continues(lines[at] ?? '', isQuote, own.length); at++)
        own.push((lines[at] ?? '').replace(isQuote ? /^\s{0,3}>\s?/ : '', ''))
      found.push({ kind: isQuote ? 'quote' : 'paragraph', inlines: inlines(own.join('\n')) })
    }
  }
  return found
}

function continues(line: string, isQuote: boolean, before: number): boolean {
  if (before === 0) return true
  if (line.trim() === '') return false
  if (isQuote) return /^\s{0,3}>/.test(line)
  return !ITEM.test(line) && !isOther(line)
}

/** Whether a line begins a block of another kind. */
function isOther(line: string): boolean {
  return HEADING.test(line) || FENCE.test(line) || /^\s{0,3}>/.test(line)
}

/** Code first, since nothing inside it is Markdown. Underscores inside words are part of names. */
const INLINE =
  /(`+)(.+?)\1|\*\*(\S(?:[^*]*\S)?)\*\*|(?<![\w*])[*_]([^\s*_](?:[^*_\n]*[^\s*_])?)[*_](?![\w*])|\[([^\][]+)\]\((\S+?)\)/g

function inlines(text: string): Inline[] {
  const found: Inline[] = []
  let end = 0
  for (const match of text.matchAll(INLINE)) {
    const inline = read(match)
    if (!inline) continue
    if (match.index > end) found.push({ kind: 'text', text: text.slice(end, match.index) })
    found.push(inline)
    end = match.index + match[0].length
  }
  if (end < text.length) found.push({ kind: 'text', text: text.slice(end) })
  return found
}

function read([, , code, strong, emphasis, label, address]: RegExpMatchArray): Inline | undefined {
  if (code !== undefined) return { kind: 'code', text: code.trim() || code }
  if (strong !== undefined) return { kind: 'strong', text: strong }
  if (emphasis !== undefined) return { kind: 'emphasis', text: emphasis }
  // Only web pages: other schemes could run programs.
  if (label !== undefined && address !== undefined && /^https?:\/\//i.test(address) && URL.canParse(address))
    return { kind: 'link', text: label, address: new URL(address).href }
  return undefined
}

/** Whether a text has anything that Markdown would show in another way; plain text is shown as it is. */
export function isMarkdown(text: string): boolean {
  return blocks(text).some(
    (block) => block.kind !== 'paragraph' || block.inlines.some((inline) => inline.kind !== 'text'),
  )
}

/** The text without its marks, in one line, for a list. */
export function plain(text: string): string {
  const words = (inlines: Inline[]) => inlines.map((inline) => inline.text).join('')
  const line = (block: Block) => {
    if (block.kind === 'code') return block.text
    return block.kind === 'list' ? block.items.map(words).join(', ') : words(block.inlines)
  }
  return blocks(text).map(line).join(' ').replace(/\s+/g, ' ')
}
