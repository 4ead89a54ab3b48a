// The values of a form: initial values, validation, and what is sent.

import { expect, test } from 'vitest'
import { check, choose, initial, prune, readNumber } from '../src/logic/form'
import type { Schema } from '../src/logic/schema'

const start = (schema: Schema) => initial(schema, schema, true)
const complaints = (schema: Schema, value: unknown) =>
  check(schema, schema, value, true).map((problem) => `${problem.path} ${problem.sentence}`)

test('a form begins with defaults and with what is required anyway', () => {
  const schema = {
    type: 'object',
    required: ['name', 'deep', 'flag', 'list', 'only'],
    properties: {
      name: { type: 'string' },
      size: { type: 'integer', default: 3 },
      optional: { type: 'object', properties: { x: { default: 1 } } },
      deep: { type: 'object', required: ['y'], properties: { y: { default: 'z' } } },
      flag: { type: 'boolean' },
      list: { type: 'array', items: { type: 'string' } },
      only: { enum: ['one'] },
    },
  }
  expect(start(schema)).toEqual({ deep: { y: 'z' }, flag: false, list: [], only: 'one', size: 3 })
})

test('a default is copied, not shared', () => {
  const schema = { default: { a: [1] } }
  const value = start(schema) as { a: number[] }
  value.a.push(2)
  expect(schema.default.a).toEqual([1])
})

test('a schema that contains itself does not begin forever', () => {
  const schema = { type: 'object', required: ['self'], properties: { self: { $ref: '#' } } }
  expect(JSON.stringify(start(schema)).length).toBeLessThan(500)
})

test('what was not given is left out, however deep', () => {
  expect(prune({ a: undefined, b: { c: undefined }, d: [undefined, 1], e: null, f: '' })).toEqual({
    b: {},
    d: [null, 1],
    e: null,
    f: '',
  })
})

test('mistakes are named with their path', () => {
  const schema = {
    type: 'object',
    required: ['name', 'items'],
    properties: {
      name: { type: 'string', minLength: 2, pattern: '^[a-z]+$' },
      age: { type: 'integer', minimum: 0, maximum: 9 },
      items: {
        type: 'array',
        minItems: 2,
        items: { type: 'object', required: ['id'], properties: { id: { type: 'number' } } },
      },
      colour: { enum: ['red'] },
      extra: { type: 'object', additionalProperties: { type: 'string' } },
    },
  }
  expect(complaints(schema, {})).toEqual(['name is required', 'items is required'])
  expect(complaints(schema, { name: 'A', age: 1.5, items: [{}], colour: 'blue', extra: { k: 1 } })).toEqual([
    'name must have at least 2 characters',
    'name must match ^[a-z]+$',
    'items must have at least 2 entries',
    'items.0.id is required',
    'age must be a whole number',
    'colour must be one of the given values',
    'extra.k must be text',
  ])
  expect(complaints(schema, { name: 'ab', age: 9, items: [{ id: 1 }, { id: 2 }], colour: 'red' })).toEqual([])
  expect(complaints(schema, { name: 'ab', age: 10, items: [{ id: 1 }, { id: 'x' }] })).toEqual([
    'items.1.id must be a number',
    'age must be at most 9',
  ])
})

test('a pattern that browsers do not know is no reason to complain', () => {
  expect(complaints({ type: 'string', pattern: '(?P<x>a)' }, 'b')).toEqual([])
})

test('a value is shown under the alternative that it fits', () => {
  const schema = {
    oneOf: [
      { type: 'object', required: ['radius'], properties: { radius: { type: 'number' } } },
      { type: 'object', required: ['side'], properties: { side: { type: 'number' } } },
      { type: 'string' },
    ],
  }
  expect(choose(schema, schema, { side: 2 })).toBe(1)
  expect(choose(schema, schema, 'x')).toBe(2)
  expect(choose(schema, schema, { nothing: 1 })).toBe(0)
  expect(complaints(schema, { side: 'x' })).toHaveLength(1)
})

test('text in a number field is kept until it is a number', () => {
  expect(readNumber('')).toBeUndefined()
  expect(readNumber(' 1.5 ')).toBe(1.5)
  expect(readNumber('1e3')).toBe(1000)
  expect(readNumber('1.')).toBe(1)
  expect(readNumber('-')).toBe('-')
  expect(complaints({ type: 'number' }, '-')).toEqual([' must be a number'])
})
