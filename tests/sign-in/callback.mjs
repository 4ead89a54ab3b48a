// The callback of an agent on the person's computer: a server on a free port that waits for one answer at a time.

import { createServer } from 'node:http'

export async function startCallback(test) {
  let arrive
  let arrived = new Promise((resolve) => (arrive = resolve))
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://127.0.0.1')
    if (url.pathname !== '/callback') return response.writeHead(404).end()
    response.writeHead(200, { 'content-type': 'text/html' }).end('<title>Agent</title><h1>Connected</h1>')
    arrive(url.searchParams)
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  test.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return {
    url: `http://127.0.0.1:${server.address().port}/callback`,
    /** The parameters of the next answer. */
    async answer() {
      const parameters = await arrived
      arrived = new Promise((resolve) => (arrive = resolve))
      return parameters
    },
  }
}
