// Makes values that match a JSON schema well enough to call a tool or to answer a question.

const SAMPLES = { string: 'sample', number: 1.5, integer: 7, boolean: true, array: [], null: null }

/** Defaults first: a form that is accepted without changes has those. */
export function sampleOf(schema) {
  if (schema.default !== undefined) return schema.default
  if (schema.enum) return schema.enum[0]
  if (schema.type === 'object') {
    const inner = Object.entries(schema.properties ?? {})
    return Object.fromEntries(inner.map(([name, schema]) => [name, sampleOf(schema)]))
  }
  return SAMPLES[schema.type] ?? SAMPLES.string
}

/** An argument called `schema` is the input schema of the other tool: one scenario expects it back unchanged. */
export function argumentsFor(tool, tools) {
  const sample = sampleOf({ type: 'object', ...tool.inputSchema })
  if ('schema' in sample) sample.schema = tools.find(({ name }) => name !== tool.name)?.inputSchema
  return sample
}
