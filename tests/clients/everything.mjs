// Starts `@modelcontextprotocol/server-everything` on a free port and prints its address first, which it does not do
// itself, or runs it on stdio. Usage: everything.mjs streamableHttp|sse|stdio

import http from 'node:http'

const transport = process.argv[2]
const path = { streamableHttp: '/mcp', sse: '/sse' }[transport]
const listen = http.Server.prototype.listen
http.Server.prototype.listen = function (...words) {
  this.once('listening', () => console.log(`http://127.0.0.1:${this.address().port}${path}`))
  return listen.apply(this, words)
}
process.env.PORT = '0'
await import('@modelcontextprotocol/server-everything/dist/index.js')
