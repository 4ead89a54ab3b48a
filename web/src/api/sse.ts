// Reads an event stream: the events of a response, in order.

export interface StreamEvent {
  /** The name of the event; `message` if it has none. */
  event: string
  data: string
}

export async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<StreamEvent> {
  let buffer = ''
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const { value, done } = await reader.read()
    buffer += value ?? ''
    let end = buffer.indexOf('\n\n')
    for (; end >= 0; end = buffer.indexOf('\n\n')) {
      yield read(buffer.slice(0, end))
      buffer = buffer.slice(end + 2)
    }
    if (done) return
  }
}

function read(frame: string): StreamEvent {
  const lines = frame.split('\n')
  const field = (name: string) =>
    lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ''))
  return { event: field('event')[0] ?? 'message', data: field('data').join('\n') }
}
