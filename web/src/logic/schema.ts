// JSON Schema as a form sees it: references resolved, alternatives found, and for each place one kind of field.
// What a schema says beyond that is left to the server, which decides anyway.

export type Schema = Record<string, unknown>

export type Kind =
  | 'string'
  | 'number'
  | 'integer'
  | 'boolean'
  | 'enum'
  | 'object'
  | 'map'
  | 'array'
  /** Some of the values of an enumeration, each at most once. */
  | 'several'
  | 'choice'
  | 'json'

export interface Property {
  name: string
  schema: Schema
  required: boolean
}

export interface Option {
  value: unknown
  /** The value, with its title if it has one. */
  label: string
  /** The title, or else the value. */
  title: string
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The schema with its reference followed and `allOf` merged in; `root` is where references begin. */
export function resolve(schema: unknown, root: Schema): Schema {
  let current: Schema = isObject(schema) ? schema : {}
  // A chain of references ends, or goes in a circle; then whatever is there has to do.
  for (let steps = 0; steps < 20 && typeof current.$ref === 'string'; steps++) {
    const { $ref, ...beside } = current
    current = { ...follow($ref as string, root), ...beside }
  }
  if (Array.isArray(current.allOf)) {
    const { allOf, ...own } = current
    current = (allOf as unknown[]).map((part) => resolve(part, root)).reduce<Schema>(merge, own)
  }
  return current
}

function follow(reference: string, root: Schema): Schema {
  if (!reference.startsWith('#')) return {}
  let place: unknown = root
  for (const part of reference.split('/').slice(1)) {
    const key = decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~')
    place = isObject(place) ? place[key] : Array.isArray(place) ? place[Number(key)] : undefined
  }
  return isObject(place) ? place : {}
}

function merge(one: Schema, other: Schema): Schema {
  const merged = { ...other, ...one }
  if (isObject(one.properties) && isObject(other.properties)) {
    merged.properties = { ...other.properties, ...one.properties }
  }
  if (Array.isArray(one.required) && Array.isArray(other.required)) {
    merged.required = [...new Set([...one.required, ...other.required])]
  }
  return merged
}

/** The types that a schema allows, without `null`. */
export function types(schema: Schema): string[] {
  const named = Array.isArray(schema.type) ? schema.type : schema.type === undefined ? [] : [schema.type]
  return named.filter((name): name is string => typeof name === 'string' && name !== 'null')
}

export function allowsNull(schema: Schema): boolean {
  return Array.isArray(schema.type) && schema.type.includes('null')
}

/** The alternatives of `oneOf` and `anyOf`, resolved; those that are only `null` are no alternatives. */
export function choices(schema: Schema, root: Schema): Schema[] {
  const { oneOf, anyOf, ...own } = schema
  const listed = Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : []
  const found = listed.map((choice) => resolve(choice, root)).filter((choice) => choice.type !== 'null')
  // What stands beside the alternatives holds for each of them.
  return found.map((choice) => merge(choice, own))
}

export function values(schema: Schema): unknown[] | undefined {
  if ('const' in schema) return [schema.const]
  return Array.isArray(schema.enum) ? schema.enum : undefined
}

/** Which field a resolved schema becomes. */
export function kindOf(schema: Schema, root: Schema): Kind {
  if (isEnumeration(schema, root)) return 'enum'
  if (choices(schema, root).length > 1) return 'choice'
  const [type, ...more] = types(schema)
  if (more.length > 0) return 'json'
  switch (type) {
    case 'string':
    case 'number':
    case 'integer':
    case 'boolean':
      return type
    case 'array':
      return schema.uniqueItems === true && isEnumeration(settle(schema.items, root), root) ? 'several' : 'array'
    case 'object':
      return kindOfObject(schema)
    default:
      return isObject(schema.properties) ? kindOfObject(schema) : 'json'
  }
}

function isEnumeration(schema: Schema, root: Schema): boolean {
  if (values(schema)) return true
  const alternatives = choices(schema, root)
  return alternatives.length > 1 && alternatives.every((choice) => 'const' in choice)
}

function kindOfObject(schema: Schema): Kind {
  if (isObject(schema.properties) && Object.keys(schema.properties).length > 0) return 'object'
  return isObject(schema.additionalProperties) ? 'map' : 'json'
}

/** A schema that is one alternative in disguise is that alternative. */
export function settle(schema: unknown, root: Schema): Schema {
  const resolved = resolve(schema, root)
  const alternatives = choices(resolved, root)
  const only = alternatives.length === 1 ? alternatives[0] : undefined
  return only ?? resolved
}

/** The values of an enumeration with the words for them. */
export function options(schema: Schema, root: Schema): Option[] {
  const listed = values(schema)
  if (listed) {
    // An older form of titles.
    const titles: unknown[] = Array.isArray(schema.enumNames) ? schema.enumNames : []
    return listed.map((value, at) => option(value, titles[at]))
  }
  return choices(schema, root).map((choice) => option(choice.const, choice.title))
}

function option(value: unknown, title: unknown): Option {
  const word = show(value)
  return typeof title === 'string' ? { value, label: `${word}: ${title}`, title } : { value, label: word, title: word }
}

function show(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** Required ones first; among themselves they keep the server's order. */
export function properties(schema: Schema): Property[] {
  const listed = propertiesAsWritten(schema)
  return [...listed.filter((one) => one.required), ...listed.filter((one) => !one.required)]
}

export function propertiesAsWritten(schema: Schema): Property[] {
  const required = Array.isArray(schema.required) ? schema.required : []
  const all = isObject(schema.properties) ? Object.entries(schema.properties) : []
  return all.map(([name, property]) => ({
    name,
    schema: isObject(property) ? property : {},
    required: required.includes(name),
  }))
}

/** A word for what belongs into a field: `string`, `array of integer`, `object or string`. */
export function describe(schema: unknown, root: Schema, depth = 0): string {
  const settled = settle(schema, root)
  if (values(settled)) return 'one of'
  const alternatives = choices(settled, root)
  if (alternatives.length > 1) {
    const words = alternatives.map((choice) => title(choice) ?? describe(choice, root, depth + 1))
    return [...new Set(words)].join(' or ')
  }
  const named = types(settled)
  if (named.includes('array') && settled.items && depth < 3) {
    return `array of ${describe(settled.items, root, depth + 1)}`
  }
  const format = typeof settled.format === 'string' ? ` (${settled.format})` : ''
  return (named.join(' or ') || (isObject(settled.properties) ? 'object' : 'any')) + format
}

export function title(schema: Schema): string | undefined {
  return typeof schema.title === 'string' ? schema.title : undefined
}
