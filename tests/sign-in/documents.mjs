// An https server with the metadata document of a client, as its maker would publish one.

import { createServer } from 'node:https'
import { identity } from './gateway.mjs'

/** Publishes the document of a client with these redirect URIs, and returns its URL. */
export async function publish(test, name, redirectUris) {
  const server = createServer(identity(), (request, response) => {
    if (request.url !== '/client.json') return response.writeHead(404).end()
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(document))
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
    redirect_uris: redirectUris,
    grant_types: ['authorization_code', 'refresh_token'],
    token_endpoint_auth_method: 'none',
  }
  return url
}
