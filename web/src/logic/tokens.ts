// Estimates what the definitions of tools cost an agent: they are part of the prompt of every request to its model.

/** Models count differently; for JSON and English, four characters for a token is close for most of them. */
const CHARACTERS = 4

interface Definition {
  canonical_name: string
  description: string
  input_schema: unknown
}

export function tokens(tool: Definition): number {
  const { canonical_name: name, description, input_schema } = tool
  return Math.ceil(JSON.stringify({ name, description, input_schema }).length / CHARACTERS)
}

export function tokensOf(tools: Definition[]): number {
  return tools.reduce((sum, tool) => sum + tokens(tool), 0)
}

/** Rounded to two digits, since it is an estimate: `about 4,200 tokens`. */
export function aboutTokens(number: number): string {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(number, 1))) - 1)
  return `about ${(Math.round(number / unit) * unit).toLocaleString('en')} tokens`
}
