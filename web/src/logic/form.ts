// The values of a form made from a JSON Schema: initial values, validation, and what is sent.
// `undefined` means that nothing was entered; such a property is left out.

import { formatProblem } from './format'
import { choices, isObject, kindOf, options, properties, settle, types, type Schema } from './schema'

export interface Problem {
  /** Property names and positions, joined by dots; empty for the whole value. */
  path: string
  sentence: string
}

/** The initial value of a field: its default, or only the required parts. */
export function initial(schema: unknown, root: Schema, required: boolean, depth = 0): unknown {
  const settled = settle(schema, root)
  if (settled.default !== undefined) return structuredClone(settled.default)
  if (!required || depth > 8) return undefined
  switch (kindOf(settled, root)) {
    case 'object': {
      const given = properties(settled).map(
        (one) => [one.name, initial(one.schema, root, one.required, depth + 1)] as const,
      )
      return Object.fromEntries(given.filter(([, value]) => value !== undefined))
    }
    case 'enum': {
      const all = options(settled, root)
      return all.length === 1 ? all[0]?.value : undefined
    }
    case 'choice':
      return initial(choices(settled, root)[0], root, true, depth + 1)
    case 'boolean':
      return false
    case 'array':
    case 'several':
      return []
    case 'map':
      return {}
    case 'json':
      return types(settled).includes('object') ? {} : undefined
    case 'string':
    case 'number':
    case 'integer':
      return undefined
  }
}

/** Removes what was not entered: `undefined` is removed from objects and becomes `null` in arrays. */
export function prune(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => prune(item) ?? null)
  if (!isObject(value)) return value
  const kept = Object.entries(value).map(([key, inner]) => [key, prune(inner)] as const)
  return Object.fromEntries(kept.filter(([, inner]) => inner !== undefined))
}

/** All probable validation errors of the server. The server decides, so they do not prevent a call. */
export function check(schema: unknown, root: Schema, value: unknown, required: boolean, path = ''): Problem[] {
  const problem = (sentence: string): Problem[] => [{ path, sentence }]
  const settled = settle(schema, root)
  if (value === undefined) return required ? problem('is required') : []
  switch (kindOf(settled, root)) {
    case 'object':
      if (!isObject(value)) return problem('must be an object')
      return properties(settled).flatMap((one) =>
        check(one.schema, root, value[one.name], one.required, join(path, one.name)),
      )
    case 'map':
      if (!isObject(value)) return problem('must be an object')
      return Object.entries(value).flatMap(([key, inner]) =>
        check(settled.additionalProperties, root, inner, true, join(path, key)),
      )
    case 'array':
    case 'several':
      if (!Array.isArray(value)) return problem('must be an array')
      return [
        ...problem(outside(value.length, settled.minItems, settled.maxItems, 'entries')).filter(says),
        ...value.flatMap((item, index) => check(settled.items, root, item, true, join(path, String(index)))),
      ]
    case 'choice': {
      const found = choices(settled, root).map((choice) => check(choice, root, value, true, path))
      return found.sort((a, b) => a.length - b.length)[0] ?? []
    }
    case 'enum': {
      const known = options(settled, root).some((option) => same(option.value, value))
      return known ? [] : problem('must be one of the given values')
    }
    case 'boolean':
      return typeof value === 'boolean' ? [] : problem('must be true or false')
    case 'string':
      return typeof value === 'string'
        ? checkText(settled, value).map((sentence) => ({ path, sentence }))
        : problem('must be text')
    case 'number':
    case 'integer':
      return checkNumber(settled, value).map((sentence) => ({ path, sentence }))
    case 'json':
      return []
  }
}

function checkText(schema: Schema, value: string): string[] {
  const found = [outside([...value].length, schema.minLength, schema.maxLength, 'characters')]
  if (typeof schema.pattern === 'string' && !matches(schema.pattern, value)) {
    found.push(`must match ${schema.pattern}`)
  }
  found.push(formatProblem(schema.format, value))
  return found.filter((sentence) => sentence !== '')
}

function checkNumber(schema: Schema, value: unknown): string[] {
  if (typeof value !== 'number' || !Number.isFinite(value)) return ['must be a number']
  if (types(schema).includes('integer') && !Number.isInteger(value)) return ['must be a whole number']
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema
  if (typeof minimum === 'number' && value < minimum) return [`must be at least ${minimum}`]
  if (typeof maximum === 'number' && value > maximum) return [`must be at most ${maximum}`]
  if (typeof exclusiveMinimum === 'number' && value <= exclusiveMinimum)
    return [`must be more than ${exclusiveMinimum}`]
  if (typeof exclusiveMaximum === 'number' && value >= exclusiveMaximum)
    return [`must be less than ${exclusiveMaximum}`]
  return []
}

/** A pattern that this browser does not support is left to the server. */
function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(value)
  } catch {
    return true
  }
}

function outside(count: number, least: unknown, most: unknown, noun: string): string {
  if (typeof least === 'number' && count < least) return `must have at least ${least} ${noun}`
  if (typeof most === 'number' && count > most) return `must have at most ${most} ${noun}`
  return ''
}

const says = (problem: Problem) => problem.sentence !== ''

export function join(path: string, part: string): string {
  return path === '' ? part : `${path}.${part}`
}

export function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** The alternative that a value matches; the first one if none matches. */
export function choose(schema: Schema, root: Schema, value: unknown): number {
  const alternatives = choices(schema, root)
  const fits = alternatives.findIndex((choice) => check(choice, root, value, true).length === 0)
  return Math.max(fits, 0)
}

/** The text of a number field as a number; text that is not a number stays text, so that no input is lost. */
export function readNumber(text: string): number | string | undefined {
  const trimmed = text.trim()
  if (trimmed === '') return undefined
  const number = Number(trimmed)
  return Number.isFinite(number) ? number : text
}
