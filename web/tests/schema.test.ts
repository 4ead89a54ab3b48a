// How a form reads a JSON Schema.

import { expect, test } from 'vitest'
import { choices, describe, kindOf, options, properties, resolve, settle } from '../src/logic/schema'

const root = {
  $defs: {
    colour: { type: 'string', enum: ['red', 'green'] },
    again: { $ref: '#/$defs/colour' },
    circle: { $ref: '#/$defs/circle' },
    'a/b': { type: 'integer' },
    tree: { type: 'object', properties: { inner: { $ref: '#/$defs/tree' } } },
  },
}

test('references are followed, escapes and chains included', () => {
  expect(resolve({ $ref: '#/$defs/again' }, root)).toMatchObject({ enum: ['red', 'green'] })
  expect(resolve({ $ref: '#/$defs/a~1b' }, root)).toMatchObject({ type: 'integer' })
  expect(resolve({ $ref: '#/$defs/again', description: 'mine' }, root)).toMatchObject({ description: 'mine' })
})

test('references that lead nowhere, outside or in a circle are harmless', () => {
  expect(resolve({ $ref: '#/$defs/none' }, root)).toEqual({})
  expect(resolve({ $ref: 'https://example.com/schema' }, root)).toEqual({})
  expect(kindOf(resolve({ $ref: '#/$defs/circle' }, root), root)).toBe('json')
  expect(resolve(true, root)).toEqual({})
})

test('allOf is merged with what stands beside it', () => {
  const schema = {
    required: ['a'],
    properties: { a: { type: 'string' } },
    allOf: [{ required: ['b'], properties: { b: { type: 'number' } } }, { $ref: '#/$defs/tree' }],
  }
  const merged = resolve(schema, root)
  const required = properties(merged).filter((one) => one.required)
  expect(required.map((one) => one.name).sort()).toEqual(['a', 'b'])
  expect(properties(merged).map((one) => one.name)).toContain('inner')
})

test('every schema has one kind of field', () => {
  const kinds: [unknown, string][] = [
    [{ type: 'string' }, 'string'],
    [{ type: ['string', 'null'] }, 'string'],
    [{ type: ['string', 'number'] }, 'json'],
    [{ type: 'integer' }, 'integer'],
    [{ const: 1 }, 'enum'],
    [{ enum: [1, 'a'] }, 'enum'],
    [{ oneOf: [{ const: 'a', title: 'A' }, { const: 'b' }] }, 'enum'],
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, 'string'],
    [{ oneOf: [{ type: 'string' }, { type: 'number' }] }, 'choice'],
    [{ type: 'array', items: {} }, 'array'],
    [{ type: 'object', properties: { a: {} } }, 'object'],
    [{ properties: { a: {} } }, 'object'],
    [{ type: 'object', additionalProperties: { type: 'string' } }, 'map'],
    [{ type: 'object' }, 'json'],
    [{}, 'json'],
  ]
  for (const [schema, kind] of kinds) expect(kindOf(settle(schema, {}), {}), JSON.stringify(schema)).toBe(kind)
})

test('alternatives keep what holds for all of them', () => {
  const schema = {
    type: 'object',
    properties: { id: { type: 'string' } },
    oneOf: [{ properties: { a: {} } }, { properties: { b: {} } }],
  }
  expect(choices(schema, {}).map((choice) => Object.keys(choice.properties as object).sort())).toEqual([
    ['a', 'id'],
    ['b', 'id'],
  ])
})

test('required parameters come first, each group in its order', () => {
  const schema = { required: ['c', 'b'], properties: { a: {}, b: {}, c: {}, d: {} } }
  expect(properties(schema).map((one) => one.name)).toEqual(['b', 'c', 'a', 'd'])
})

test('types are described in words', () => {
  expect(describe({ type: 'array', items: { type: 'integer' } }, {})).toBe('array of integer')
  expect(describe({ oneOf: [{ title: 'Circle' }, { type: 'string' }] }, {})).toBe('Circle or string')
  expect(describe({ type: 'string', format: 'date' }, {})).toBe('string (date)')
  expect(options({ oneOf: [{ const: 'a', title: 'First' }] }, {})).toEqual([
    { value: 'a', label: 'a: First', title: 'First' },
  ])
})
