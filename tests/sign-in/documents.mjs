// The https server of an agent's maker: the metadata document, and the page to which people come back.

import { createServer } from 'node:https'
import { identity } from './gateway.mjs'

/** Publishes the document of a client with these redirect URIs and `/callback` of the same server. Returns its URL. */
export async function publish(test, name, redirectUris) {
  const server = createServer(identity(), (request, response) => {
    const send = (type, body) => response.writeHead(200, { 'content-type': type }).end(body)
    if (request.url === '/client.json') return send('application/json', JSON.stringify(document))
    if (request.url.startsWith('/callback?')) return send('text/html', '<title>Agent</title><h1>Connected</h1>')
    response.writeHead(404).end()
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  test.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const url = `https://localhost:${server.address().port}/client.json`
  const document = {
    client_id: url,
    client_name: name,
    redirect_uris: [new URL('/callback', url), ...redirectUris],
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'none',
  }
  return url
}
