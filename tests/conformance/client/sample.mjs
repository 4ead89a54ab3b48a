// Values that fit a JSON schema well enough to call a tool or to answer a question with.

const SAMPLES = { string: 'sample', number: 1.5, integer: 7, boolean: true, array: [], null: null }

/** Defaults first: an accepted form of which nothing was filled in by hand has those. */
export function sampleOf(schema) {
  if (schema.default !== undefined) return schema.default
  if (schema.enum) return schema.enum[0]
  if (schema.type === 'object') {
    const inner = Object.entries(schema.properties ?? {})
    return Object.fromEntries(inner.map(([name, schema]) => [name, sampleOf(schema)]))
  }
  return SAMPLES[schema.type] ?? SAMPLES.string
}

/** An argument called `schema` is the input schema of the other tool: one scenario wants it sent back unharmed. */
export function argumentsFor(tool, tools) {
  const sample = sampleOf({ type: 'object', ...tool.inputSchema })
  if ('schema' in sample) sample.schema = tools.find(({ name }) => name !== tool.name)?.inputSchema
  return sample
}
