// The time line of a call: its two hops, client to gateway and gateway to server, on one scale in milliseconds.

import type { Call } from '../api/client'
import { exact } from './explanation'

export interface Segment {
  hop: 'client' | 'server'
  what: 'gateway' | 'waiting' | 'server' | 'answer' | 'input'
  from: number
  to: number
}

export interface Mark {
  what: 'progress' | 'asked' | 'answered'
  at: number
}

/** A moment of a call, in words. */
export interface Moment {
  name: 'Arrived' | 'Waited' | 'Sent' | 'First byte' | 'Done'
  at: number
  about: string
}

export interface TimeLine {
  /** The whole duration. */
  length: number
  segments: Segment[]
  marks: Mark[]
  moments: Moment[]
  /** Whether the positions are guessed, since only durations were recorded. */
  isApproximate: boolean
}

/** What the time line needs of a call. */
export type Timed = Pick<
  Call,
  'duration_ms' | 'queue_ms' | 'upstream_ms' | 'input_ms' | 'gateway_ms' | 'attempts' | 'marks'
> &
  Partial<Pick<Call, 'sent_ms' | 'first_byte_ms'>>

/** From when on waiting for a slot is shown: in milliseconds, or as a part of the duration. */
const NOTICED_MS = 0.5
const NOTICED_PART = 0.05

export function timeLine(call: Timed): TimeLine {
  const length = Math.max(call.duration_ms, 0.001)
  const within = (at: number) => Math.min(Math.max(at, 0), length)
  const marks = marksOf(call).map((mark) => ({ ...mark, at: within(mark.at) }))
  const wasSent = typeof call.sent_ms === 'number' || call.upstream_ms > 0
  const isApproximate = wasSent && typeof call.sent_ms !== 'number'
  const sent = wasSent ? within(call.sent_ms ?? call.queue_ms + call.gateway_ms / 2) : length
  const first = typeof call.first_byte_ms === 'number' ? within(Math.max(call.first_byte_ms, sent)) : undefined
  const answered = within(Math.max(sent + call.upstream_ms + call.input_ms, first ?? 0))

  // Taking a free slot at once is no waiting.
  const queue = call.queue_ms >= NOTICED_MS || call.queue_ms >= length * NOTICED_PART ? call.queue_ms : 0
  const waitedFrom = within(sent - queue)
  const segments: Segment[] = [
    { hop: 'client', what: 'gateway', from: 0, to: queue > 0 ? waitedFrom : sent },
    { hop: 'client', what: 'waiting', from: waitedFrom, to: queue > 0 ? sent : waitedFrom },
  ]
  if (wasSent) {
    segments.push(
      { hop: 'client', what: 'gateway', from: answered, to: length },
      { hop: 'server', what: 'server', from: sent, to: first ?? answered },
      { hop: 'server', what: 'answer', from: first ?? answered, to: answered },
    )
  }
  segments.push(...inputs(marks, call.input_ms, within))
  const moments: Moment[] = [{ name: 'Arrived', at: 0, about: 'the first byte of the request' }]
  if (queue > 0)
    moments.push({ name: 'Waited', at: waitedFrom, about: `${exact(queue)} for a free slot of the server` })
  if (wasSent) moments.push({ name: 'Sent', at: sent, about: 'to the server' })
  if (first !== undefined) moments.push({ name: 'First byte', at: first, about: 'the server began to answer' })
  moments.push({ name: 'Done', at: length, about: 'the answer was handed over' })
  return { length, segments: segments.filter(({ from, to }) => to > from), marks, moments, isApproximate }
}

function marksOf(call: Timed): Mark[] {
  const known: Record<string, Mark['what']> = {
    progress: 'progress',
    notice: 'progress',
    input: 'asked',
    answer: 'answered',
  }
  return call.marks.flatMap((mark) => {
    const what = known[mark.kind]
    return what ? [{ what, at: mark.at_ms }] : []
  })
}

/** The times in which a person was asked: from each question to its answer. */
function inputs(marks: Mark[], whole: number, within: (at: number) => number): Segment[] {
  const segments: Segment[] = []
  let asked: number | undefined
  for (const { what, at } of marks) {
    if (what === 'asked') asked ??= at
    if (what === 'answered' && asked !== undefined) {
      segments.push({ hop: 'client', what: 'input', from: asked, to: at })
      asked = undefined
    }
  }
  // Without the time of the answer, all of the waiting is drawn after the question.
  const rest = whole - segments.reduce((sum, { from, to }) => sum + to - from, 0)
  if (asked !== undefined && rest > 0)
    segments.push({ hop: 'client', what: 'input', from: asked, to: within(asked + rest) })
  return segments
}
