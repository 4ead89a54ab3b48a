// What a tool asks for while it runs, as its page shows it, and the answers that the protocol has for it.

import type { InputRequest } from '../api/invocation'
import { isObject, type Schema } from './schema'

export type Question =
  | { kind: 'form'; message: string; schema: Schema }
  | { kind: 'page'; message: string; url: string }
  | { kind: 'sampling'; systemPrompt: string; messages: SamplingMessage[] }
  | { kind: 'roots' }
  | { kind: 'unknown'; method: string; params: unknown }

export interface SamplingMessage {
  role: string
  blocks: unknown[]
}

/** Reads a request of a server. One that is not as the protocol has it can only be refused. */
export function readQuestion({ method, params }: InputRequest): Question {
  const given = isObject(params) ? params : {}
  const message = text(given.message)
  const mode = given.mode ?? 'form'
  if (method === 'elicitation/create' && mode === 'form' && isObject(given.requestedSchema)) {
    return { kind: 'form', message, schema: formSchema(given.requestedSchema) }
  }
  if (method === 'elicitation/create' && mode === 'url' && typeof given.url === 'string') {
    return { kind: 'page', message, url: given.url }
  }
  if (method === 'sampling/createMessage' && Array.isArray(given.messages)) {
    return { kind: 'sampling', systemPrompt: text(given.systemPrompt), messages: given.messages.map(readMessage) }
  }
  if (method === 'roots/list') return { kind: 'roots' }
  return { kind: 'unknown', method, params }
}

function readMessage(raw: unknown): SamplingMessage {
  const message = isObject(raw) ? raw : {}
  const blocks = Array.isArray(message.content) ? (message.content as unknown[]) : [message.content]
  return { role: text(message.role) || 'unknown', blocks }
}

/** The schema of a form, in which each value of a list of choices is chosen once. */
function formSchema(schema: Schema): Schema {
  const listed = isObject(schema.properties) ? Object.entries(schema.properties) : []
  const properties = listed.map(([name, property]) => [
    name,
    isObject(property) && property.type === 'array' ? { ...property, uniqueItems: true } : property,
  ])
  return { ...schema, type: 'object', properties: Object.fromEntries(properties) as Schema }
}

/** The address of a page that may become a link; `undefined` for anything that is not HTTP. */
export function webAddress(url: string): URL | undefined {
  if (!URL.canParse(url)) return undefined
  const parsed = new URL(url)
  return parsed.protocol === 'https:' || parsed.protocol === 'http:' ? parsed : undefined
}

/** A folder as a `file://` URI: an absolute path, or a URI; `undefined` for anything else. */
export function folderUri(entered: string): string | undefined {
  const given = entered.trim()
  if (/^\/(?!\/)/.test(given)) return `file://${given.split('/').map(encodeURIComponent).join('/')}`
  if (!/^file:\/\//i.test(given) || !URL.canParse(given)) return undefined
  return new URL(given).href
}

export const answers = {
  accept: (content?: unknown) => (content === undefined ? { action: 'accept' } : { action: 'accept', content }),
  decline: { action: 'decline' },
  cancel: { action: 'cancel' },
  message: (written: string) => ({
    role: 'assistant',
    content: { type: 'text', text: written },
    model: 'human',
  }),
  roots: (uris: string[]) => ({ roots: uris.map((uri) => ({ uri })) }),
  /** The server gets an error. */
  refuse: null,
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
