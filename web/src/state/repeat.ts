// "Run again": opens the form of the tool, prompt or resource of a recorded call, filled in with what was kept of it.

import type { Call } from '../api/client'
import { fullName, nounOf } from '../logic/calls'
import { isObject, properties } from '../logic/schema'
import { gateway } from './gateway.svelte'
import { href, route } from './route.svelte'
import { runs } from './runs.svelte'

export interface Repeat {
  /** Why it cannot be run again; empty if it can. */
  missing: string
  /** Whether the form will have the same arguments. */
  hasArguments: boolean
  open: () => void
}

/** What a prompt form begins with, by the full name of the prompt. */
export const promptArguments = new Map<string, Record<string, string>>()

/** How to repeat a call; `undefined` while the lists are being loaded. */
export function repeat(call: Call, args: unknown): Repeat | undefined {
  const name = fullName(call)
  const given = isObject(args) ? args : undefined
  const gone = (noun: string) => `No such ${noun} is registered now, so it cannot be run again.`
  switch (nounOf(call.method)) {
    case 'tool': {
      if (!gateway.tools.data) return undefined
      const tool = gateway.tools.data.items.find((one) => one.canonical_name === name)
      if (!tool) return { missing: gone('tool'), hasArguments: false, open: () => undefined }
      const open = () => {
        if (given) {
          const known = new Set(properties(tool.input_schema).map((property) => property.name))
          const isForm = Object.keys(given).every((key) => known.has(key))
          const draft = { value: given, text: JSON.stringify(given, null, 2), mode: isForm ? 'form' : 'json' } as const
          runs.drafts.set(name, draft)
        }
        route.go(href('tools', name))
      }
      return { missing: '', hasArguments: given !== undefined, open }
    }
    case 'prompt': {
      if (!gateway.prompts.data) return undefined
      const isKnown = gateway.prompts.data.items.some((one) => one.canonical_name === name)
      if (!isKnown) return { missing: gone('prompt'), hasArguments: false, open: () => undefined }
      const open = () => {
        const texts = Object.entries(given ?? {}).map(([key, value]) => [key, String(value)])
        if (given) promptArguments.set(name, Object.fromEntries(texts) as Record<string, string>)
        route.go(href('prompts', name))
      }
      return { missing: '', hasArguments: given !== undefined, open }
    }
    case 'resource': {
      const { server } = call
      const isKnown = server && (gateway.servers.data?.items ?? []).some((one) => one.name === server)
      if (!isKnown) return { missing: gone('server'), hasArguments: false, open: () => undefined }
      return { missing: '', hasArguments: true, open: () => route.go(href('resources', server, call.name)) }
    }
  }
}
