// Why a call was slow, denied or failed: sentences made of what was recorded, and what to do about it.

import type { Call } from '../api/client'
import { fullName, nounOf } from './calls'
import { capitalized, count, duration, size } from './words'

export interface Explanation {
  title: string
  /** Complete sentences. */
  text: string[]
  advice: string
  /** The page on which something can be done about it. */
  next?: { label: string; page: 'servers' | 'tools' | 'system'; rest: string[] } | undefined
}

/** From here on, a call is slow enough to say what to do about it. */
const SLOW_MS = 1000

export function explain(call: Call): Explanation {
  const time = where(call)
  const server = call.server ?? ''
  const named = serverOf(call)
  const toServer = server ? { label: `Open ${server}`, page: 'servers' as const, rest: [server] } : undefined
  // A tool that does not exist has no server, and was asked for by its full name.
  const isFull = call.server ? true : call.name.includes('__')
  const deniedTool = nounOf(call.method) === 'tool' && isFull ? fullName(call) : ''
  const told = call.detail ?? call.error ?? ''
  const reason = told ? [`${capitalized(told).replace(/[.\s]+$/, '')}.`] : []
  switch (call.outcome) {
    case 'denied':
      return {
        title: 'Why was it denied?',
        text: [
          ...reason,
          server ? `The gateway did not send it to ${server}.` : 'The gateway did not send it to any server.',
        ],
        advice: deniedAdvice(call),
        next: deniedTool ? { label: 'Who sees this tool?', page: 'tools', rest: [deniedTool] } : toServer,
      }
    case 'limited':
      return {
        title: 'Why was it refused?',
        text: [
          ...reason,
          call.attempts > 0
            ? 'The result found no room in the gateway. The call may have run.'
            : 'A limit was reached, so the gateway refused the call at once instead of making others wait.',
        ],
        advice:
          'The limits of the gateway and what is used of them are on the System page. The rate limits and the concurrent ' +
          'calls of a server are among its settings.',
        next: { label: 'See the limits', page: 'system', rest: [] },
      }
    case 'timed_out':
      return {
        title: 'Why did it time out?',
        text: [`${capitalized(named)} did not finish within ${duration(call.duration_ms)}.`, ...reason, ...time],
        advice:
          'If the tool needs that long, set a longer timeout for the server. Otherwise its log may say what it waited for.',
        next: toServer,
      }
    case 'upstream_error':
      return {
        title: 'Why did it fail?',
        text: [...reason, sentTimes(call), ...time].filter(Boolean),
        advice: `${capitalized(named)} answered with an error of the protocol, or could not be reached. Its log may say more.`,
        next: toServer,
      }
    case 'tool_error':
      return {
        title: 'Why did it fail?',
        text: [...reason, 'The tool ran and reported an error; the gateway passed it on unchanged.', ...time],
        advice: 'A common cause is a wrong argument or a missing setting of the server.',
        next: toServer,
      }
    case 'cancelled':
      return {
        title: 'Why did it end early?',
        text: [
          `After ${duration(call.duration_ms)} the caller cancelled the call or disconnected, or its token was revoked.`,
          ...time,
        ],
        advice: call.upstream_ms > 0 ? `${capitalized(named)} was told to stop.` : '',
      }
    default:
      return {
        title: call.duration_ms >= SLOW_MS ? 'Why was it slow?' : 'Where did the time go?',
        text: [...time, sentTimes(call)].filter(Boolean),
        advice: call.duration_ms >= SLOW_MS ? slowAdvice(call) : '',
        next: call.duration_ms >= SLOW_MS ? toServer : undefined,
      }
  }
}

function serverOf({ server }: Call): string {
  return server ? `the server ${server}` : 'the server'
}

type Part = 'queue' | 'server' | 'input' | 'gateway'

/** The parts of the duration, the longest first. */
function parts(call: Call): [Part, number][] {
  const all: [Part, number][] = [
    ['queue', call.queue_ms],
    ['server', call.upstream_ms],
    ['input', call.input_ms],
    ['gateway', call.gateway_ms],
  ]
  return all.filter(([, ms]) => ms > 0).sort((one, other) => other[1] - one[1])
}

/** What took most of the time, and the next part if it matters. */
function where(call: Call): string[] {
  const [first, second] = parts(call)
  if (!first || call.duration_ms <= 0) return []
  const share = ([, ms]: [Part, number]) => ms / call.duration_ms
  const sentences = [`${capitalized(phrase(first, call))}, ${percent(share(first))} of ${exact(call.duration_ms)}.`]
  if (second && share(second) >= 0.1) sentences.push(`${capitalized(phrase(second, call))}.`)
  return sentences
}

function phrase([part, ms]: [Part, number], call: Call): string {
  const server = serverOf(call)
  switch (part) {
    case 'queue':
      return `it waited ${exact(ms)} for a free slot of ${server}`
    case 'server':
      return `${server} took ${exact(ms)}${firstByte(call)}`
    case 'input':
      return `it waited ${exact(ms)} for ${call.rounds > 1 ? `the answers to ${count(call.rounds, 'question')}` : 'the answer of a person'}`
    case 'gateway':
      return `the gateway itself took ${exact(ms)}`
  }
}

/** Whether the server was slow to begin or slow to send, if that is known. */
function firstByte({ sent_ms, first_byte_ms, upstream_ms, input_ms }: Call): string {
  if (typeof sent_ms !== 'number' || typeof first_byte_ms !== 'number' || input_ms > 0) return ''
  const before = first_byte_ms - sent_ms
  return before > 0 && upstream_ms - before > upstream_ms * 0.1 ? ` (${exact(before)} until its first byte)` : ''
}

function sentTimes({ attempts, rounds }: Call): string {
  if (attempts <= 1) return ''
  return `It was sent ${attempts} times${rounds > 0 ? '' : ', since earlier attempts got no answer'}.`
}

function slowAdvice(call: Call): string {
  const server = serverOf(call)
  switch (parts(call)[0]?.[0]) {
    case 'queue':
      return `${capitalized(server)} is allowed too few calls at a time for this load: raise its concurrent calls if it can do more.`
    case 'server':
      return `The time was spent in the server, not in the gateway. Its log may say why, and its charts whether it is always so.`
    case 'input':
      return 'The tool asked a person and had to wait for the answer.'
    case 'gateway':
      return `The call had ${size(call.request_bytes)} of request and ${size(call.response_bytes)} of response. Large messages and a busy machine make the gateway slow.`
    case undefined:
      return ''
  }
}

function deniedAdvice(call: Call): string {
  const noun = nounOf(call.method)
  return (
    `The ${noun} does not exist under this name, is disabled, or is not part of what this caller may use, or the request is ` +
    `not valid. Check the name, enable the ${noun} and its server, or use an endpoint that has it.`
  )
}

function percent(share: number): string {
  return `${Math.min(100, Math.round(share * 100))} %`
}

/** A duration with the digits that short times need. */
export function exact(ms: number): string {
  if (ms === 0) return '0 ms'
  if (ms >= 100) return duration(ms)
  return ms >= 10 ? `${ms.toFixed(0)} ms` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`
}
