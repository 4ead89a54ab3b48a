// Splits a command as typed in a terminal into a program and its arguments, and joins them again.

export interface CommandLine {
  command: string
  args: string[]
}

/** Words are separated by spaces; quotes and backslashes work as in a shell, variables do not. */
export function split(line: string): CommandLine | { problem: string } {
  const words: string[] = []
  let word: string | undefined
  let quote: '"' | "'" | undefined
  for (let at = 0; at < line.length; at++) {
    const letter = line.charAt(at)
    if (quote !== undefined) {
      if (letter === quote) quote = undefined
      else if (letter === '\\' && quote === '"' && '"\\'.includes(line.charAt(at + 1))) word += line.charAt(++at)
      else word += letter
    } else if (letter === '"' || letter === "'") {
      quote = letter
      word ??= ''
    } else if (letter === '\\' && at + 1 < line.length) {
      word = (word ?? '') + line.charAt(++at)
    } else if (/\s/.test(letter)) {
      if (word !== undefined) words.push(word)
      word = undefined
    } else {
      word = (word ?? '') + letter
    }
  }
  if (quote !== undefined) return { problem: `the quote ${quote} is not closed` }
  if (word !== undefined) words.push(word)
  const [command, ...args] = words
  return command === undefined ? { problem: 'is required: the program to start and its arguments' } : { command, args }
}

/** Quotes a word for a shell. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
