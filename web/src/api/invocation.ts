// Calls a tool as a stream: progress and questions while it runs, then its result. Cancelling the request cancels the call.

import { ApiError, paths, reach, refusal, type ToolResult } from './client'

export interface Progress {
  progress?: number
  total?: number
  message?: string
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
  let buffer = ''
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const { value, done } = await reader.read()
    buffer += value ?? ''
    let end = buffer.indexOf('\n\n')
    for (; end >= 0; end = buffer.indexOf('\n\n')) {
      const invoked = take(buffer.slice(0, end), listener)
      if (invoked) return invoked
      buffer = buffer.slice(end + 2)
    }
    if (done) throw new ApiError('the gateway ended the answer before the result came', 0)
  }
}

function take(frame: string, { onProgress, onInput }: Listener): Invoked | undefined {
  const lines = frame.split('\n')
  const field = (name: string) =>
    lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ''))
  const data = field('data').join('\n')
  switch (field('event')[0]) {
    case 'progress':
      onProgress(JSON.parse(data) as Progress)
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
