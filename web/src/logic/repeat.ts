// Commands that repeat a call of a tool in a terminal: with curl, and with the command line of toolgate.

import { quote } from './commandline'
import { isObject } from './schema'

/** The addresses at which the command line looks for a gateway by itself. */
const DEFAULTS = ['http://127.0.0.1:8080', 'http://localhost:8080']

/** The flag that names a gateway at another than the default address, with a space before it. */
export function registryFlag(gateway: string): string {
  return DEFAULTS.includes(gateway) ? '' : ` --registry ${quote(gateway)}`
}

/** Calls a tool over REST; `undefined` for arguments that the route cannot take. The arguments are an object as JSON. */
export function curl(gateway: string, tool: string, schema: unknown, args: string): string | undefined {
  const body = restBody(tool, schema, args)
  return body === undefined ? undefined : `curl -X POST ${quote(`${gateway}/api/v0/tools/invoke`)} -d ${quote(body)}`
}

export function cli(gateway: string, tool: string, args: string): string {
  return `toolgate invoke ${quote(tool)} --input ${quote(args)}${registryFlag(gateway)}`
}

/** The arguments are joined as text: large numbers keep their digits. */
function restBody(tool: string, schema: unknown, args: string): string | undefined {
  const given: unknown = JSON.parse(args)
  if (!isObject(given)) return undefined
  const properties = isObject(schema) && isObject(schema.properties) ? schema.properties : {}
  const name = JSON.stringify(tool)
  // `name` beside the arguments is the name of the tool, so an argument of that name needs an object of its own.
  if ('name' in properties && !('arguments' in properties)) return `{"name":${name},"arguments":${args}}`
  if ('name' in given) return undefined
  const inner = args.trim().slice(1, -1).trim()
  return inner === '' ? `{"name":${name}}` : `{"name":${name},${inner}}`
}
