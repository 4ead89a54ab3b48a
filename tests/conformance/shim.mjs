// A reverse proxy between the conformance suite and the gateway's endpoint for all servers, where the names
// of tools and prompts have their server's name in front. The suite knows the plain names, so the prefix is
// added to its requests and removed from the lists in responses. Everything else passes unchanged.
//
// node shim.mjs http://127.0.0.1:8080 conf__

import http from 'node:http'

const [, , gateway, prefix] = process.argv
const base = new URL(gateway)

const NAMED = new Set(['tools/call', 'prompts/get'])

/** Adds the prefix to the names in a request, and returns whether its `Mcp-Name` is one of them. */
function qualify(message) {
  const params = message?.params
  if (NAMED.has(message?.method)) {
    if (typeof params?.name === 'string') params.name = prefix + params.name
    return true
  }
  if (message?.method === 'completion/complete' && params?.ref?.type === 'ref/prompt') {
    params.ref.name = prefix + params.ref.name
  }
  return false
}

/** Removes the prefix from the names in a list; other messages are returned unchanged. */
function strip(text) {
  let message
  try {
    message = JSON.parse(text)
  } catch {
    return text
  }
  let changed = false
  for (const list of [message?.result?.tools, message?.result?.prompts]) {
    for (const item of Array.isArray(list) ? list : []) {
      if (typeof item?.name === 'string' && item.name.startsWith(prefix)) {
        item.name = item.name.slice(prefix.length)
        changed = true
      }
    }
  }
  return changed ? JSON.stringify(message) : text
}

async function read(stream) {
  const chunks = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** Line by line, since a message is one `data:` line. */
async function relayEvents(upstream, response) {
  let rest = ''
  for await (const chunk of upstream.setEncoding('utf8')) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()
    const relayed = lines.map((line) => (line.startsWith('data: ') ? `data: ${strip(line.slice(6))}` : line))
    if (relayed.length > 0) response.write(`${relayed.join('\n')}\n`)
  }
  response.end(rest)
}

async function relay(request, response) {
  let body = await read(request)
  // `Host` and `Origin` stay: the suite tests how the gateway treats foreign ones.
  const headers = { ...request.headers }
  try {
    const message = JSON.parse(body)
    const named = qualify(message)
    if (named && headers['mcp-name'] !== undefined) headers['mcp-name'] = prefix + headers['mcp-name']
    body = Buffer.from(JSON.stringify(message))
  } catch {
    // A body that is not JSON is passed on, so that the gateway refuses it.
  }
  delete headers['content-length']
  delete headers['transfer-encoding']
  if (body.length > 0) headers['content-length'] = body.length

  const { hostname: host, port } = base
  const forward = http.request({ host, port, path: request.url, method: request.method, headers })
  // When a client disconnects, its request to the gateway is cancelled too.
  response.on('close', () => forward.destroy())
  forward.on('error', () => response.destroy())
  forward.on('response', async (upstream) => {
    const headers = { ...upstream.headers }
    delete headers['content-length']
    delete headers['transfer-encoding']
    try {
      response.writeHead(upstream.statusCode, headers)
      if ((headers['content-type'] ?? '').startsWith('text/event-stream')) {
        response.flushHeaders()
        await relayEvents(upstream, response)
      } else {
        response.end(strip((await read(upstream)).toString('utf8')))
      }
    } catch {
      response.destroy()
    }
  })
  forward.end(body)
}

const server = http.createServer((request, response) => {
  relay(request, response).catch(() => response.destroy())
})
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}`))
