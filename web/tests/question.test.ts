// What a tool asks for while it runs: how requests are read, and what may become a link or a folder.

import { expect, test } from 'vitest'
import { check, initial } from '../src/logic/form'
import { formatProblem } from '../src/logic/format'
import { folderUri, readQuestion, webAddress, type Question } from '../src/logic/question'
import { kindOf, options, settle, type Schema } from '../src/logic/schema'

const elicit = (params: unknown) => readQuestion({ method: 'elicitation/create', params })

function formOf(question: Question): Schema {
  if (question.kind !== 'form') throw new Error(`not a form: ${question.kind}`)
  return question.schema
}

test('each kind of request is read, with or without its mode', () => {
  const requestedSchema = { type: 'object', properties: { name: { type: 'string' } } }
  for (const mode of [undefined, 'form']) {
    expect(elicit({ mode, message: 'Who?', requestedSchema })).toMatchObject({ kind: 'form', message: 'Who?' })
  }
  const url = 'https://example.com/'
  expect(elicit({ mode: 'url', message: 'Sign in', url })).toEqual({ kind: 'page', message: 'Sign in', url })
  expect(readQuestion({ method: 'roots/list' })).toEqual({ kind: 'roots' })
  const [one, other] = [{ type: 'text', text: 'a' }, { type: 'image' }]
  const messages = [
    { role: 'user', content: one },
    { role: 'assistant', content: [one, other] },
  ]
  expect(readQuestion({ method: 'sampling/createMessage', params: { messages, systemPrompt: 'Be brief' } })).toEqual({
    kind: 'sampling',
    systemPrompt: 'Be brief',
    messages: [
      { role: 'user', blocks: [one] },
      { role: 'assistant', blocks: [one, other] },
    ],
  })
})

test('a request that is not as the protocol has it can only be refused', () => {
  for (const params of [undefined, null, [], {}, { mode: 'smoke' }, { mode: 'url' }, { requestedSchema: 7 }]) {
    expect(elicit(params).kind).toBe('unknown')
  }
  expect(readQuestion({ method: 'sampling/createMessage', params: { messages: 'x' } }).kind).toBe('unknown')
  expect(readQuestion({ method: 'future/ask', params: {} }).kind).toBe('unknown')
})

test('the fields of a form begin with their defaults and show the titles of their choices', () => {
  const form = formOf(
    elicit({
      requestedSchema: {
        properties: {
          old: { type: 'string', enum: ['a', 'b'], enumNames: ['First', 'Second'] },
          one: {
            type: 'string',
            oneOf: [
              { const: 'r', title: 'Red' },
              { const: 'g', title: 'Green' },
            ],
            default: 'g',
          },
          some: { type: 'array', items: { anyOf: [{ const: 'x', title: 'X' }, { const: 'y' }] }, maxItems: 1 },
          sure: { type: 'boolean', default: true },
        },
        required: ['old'],
      },
    }),
  )
  const fields = form.properties as Record<string, Schema>
  const titles = (schema: unknown) => options(settle(schema, form), form).map((option) => option.title)
  expect(titles(fields.old)).toEqual(['First', 'Second'])
  expect(titles(fields.one)).toEqual(['Red', 'Green'])
  expect(titles(fields.some?.items)).toEqual(['X', 'y'])
  expect(kindOf(settle(fields.some, form), form)).toBe('several')
  expect(initial(form, form, true)).toEqual({ one: 'g', sure: true })
  const problems = check(form, form, { one: 'z', some: ['x', 'y'] }, true)
  expect(problems.map(({ path, sentence }) => `${path} ${sentence}`)).toEqual([
    'old is required',
    'one must be one of the given values',
    'some must have at most 1 entries',
  ])
})

test('a list that refers to itself is a list', () => {
  const schema: Schema = { type: 'array', uniqueItems: true, items: { $ref: '#' } }
  expect(kindOf(schema, schema)).toBe('array')
})

test('texts are checked by their format', () => {
  const right = {
    email: ['a.b+c@mail.example.com', 'a@localhost'],
    uri: ['https://example.com/a?b#c', 'urn:isbn:1'],
    date: ['2024-02-29', '2000-02-29', '0099-12-31'],
    'date-time': ['2030-12-31T23:59:60Z', '2030-12-31t23:59:00.25+05:30'],
    postcode: ['anything'],
    constructor: ['anything'],
  }
  const wrong = {
    email: ['a', '@b.com', 'a@b..com', 'a b@c.com', 'a@b@c.com'],
    uri: ['/path', 'http://a b', 'https://'],
    date: ['2023-02-29', '1900-02-29', '2023-13-01', '2023-04-31', '23-04-01', ''],
    'date-time': [
      '2030-12-31',
      '2030-12-31T23:59:00',
      '2030-12-31T24:00:00Z',
      '2030-02-30T10:00:00Z',
      '2030-12-31T23:59:00+24:00',
    ],
  }
  for (const [format, texts] of Object.entries(right))
    for (const text of texts) expect(formatProblem(format, text), `${format} ${text}`).toBe('')
  for (const [format, texts] of Object.entries(wrong))
    for (const text of texts) expect(formatProblem(format, text), `${format} ${text}`).not.toBe('')
})

test('only HTTP addresses become links, and their host is the real one', () => {
  expect(webAddress('https://trusted.example@evil.example:8443/login')?.host).toBe('evil.example:8443')
  expect(webAddress('https://gооgle.com/')?.host).toBe('xn--ggle-55da.com')
  for (const url of ['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x', '/login', ''])
    expect(webAddress(url), url).toBeUndefined()
})

test('a folder is an absolute path or a file URI', () => {
  expect(folderUri(' /home/me/my files#1 ')).toBe('file:///home/me/my%20files%231')
  expect(folderUri('file:///home/me')).toBe('file:///home/me')
  for (const text of ['home/me', '//host/share', 'https://example.com/', 'file:', '~'])
    expect(folderUri(text), text).toBeUndefined()
})
