// Calls a tool as a stream: progress and questions while it runs, then its result. Cancelling the request cancels the call.

import { ApiError, paths, reach, refusal, type ToolResult } from './client'
import { events, type StreamEvent } from './sse'

export interface Progress {
  progress?: number
  total?: number
  message?: string
}

/** A notification of the server about the call, other than progress. */
export interface Notification {
  method: string
  params?: unknown
}

/** A request of the server to the person who calls. */
export interface InputRequest {
  method: string
  params?: unknown
}

/** Requests that were not shown before, by the keys under which they are answered. */
export interface InputEvent {
  call: string
  requests: Record<string, InputRequest>
}

/** Called while the tool runs. */
export interface Listener {
  onProgress: (progress: Progress) => void
  onNotification: (notification: Notification) => void
  onInput: (event: InputEvent) => void
}

export interface Invoked {
  result: ToolResult
  /** The unchanged text that the gateway sent. */
  raw: string
}

export async function invoke(tool: string, args: string, listener: Listener, signal: AbortSignal): Promise<Invoked> {
  const headers = { accept: 'text/event-stream', 'content-type': 'application/json' }
  const answer = await reach(paths.invoke(tool), { method: 'POST', headers, body: args, signal })
  if (!answer.ok || !answer.body) throw refusal(await answer.text(), answer.status)
  for await (const event of events(answer.body)) {
    const invoked = take(event, listener)
    if (invoked) return invoked
  }
  throw new ApiError('the gateway ended the answer before the result came', 0)
}

function take({ event, data }: StreamEvent, { onProgress, onNotification, onInput }: Listener): Invoked | undefined {
  switch (event) {
    case 'progress':
      onProgress(JSON.parse(data) as Progress)
      return undefined
    case 'notification':
      onNotification(JSON.parse(data) as Notification)
      return undefined
    case 'input':
      onInput(JSON.parse(data) as InputEvent)
      return undefined
    case 'result':
      return { result: JSON.parse(data) as ToolResult, raw: data }
    case 'error':
      throw refusal(data, 500)
    default:
      return undefined
  }
}
