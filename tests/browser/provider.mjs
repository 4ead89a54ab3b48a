// An authorization server for one test: registers clients, asks the person, and issues one token.

import { createServer } from 'node:http'

const TOKEN = 'granted-0001'

export async function startProvider(test) {
  const codes = new Map()
  const server = createServer(async (request, response) => {
    const url = new URL(request.url, origin())
    let body = ''
    for await (const chunk of request) body += chunk
    const json = (value) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value))
    switch (url.pathname) {
      case '/.well-known/oauth-authorization-server':
        return json({
          issuer: origin(),
          authorization_endpoint: `${origin()}/authorize`,
          token_endpoint: `${origin()}/token`,
          registration_endpoint: `${origin()}/register`,
          response_types_supported: ['code'],
          grant_types_supported: ['authorization_code', 'refresh_token'],
          code_challenge_methods_supported: ['S256'],
          token_endpoint_auth_methods_supported: ['none'],
        })
      case '/register':
        response.writeHead(201, { 'content-type': 'application/json' })
        return response.end(JSON.stringify({ ...JSON.parse(body), client_id: 'the-gateway' }))
      case '/authorize': {
        const back = new URL(url.searchParams.get('redirect_uri'))
        back.searchParams.set('state', url.searchParams.get('state'))
        const code = `code-${codes.size}`
        codes.set(code, url.searchParams.get('code_challenge'))
        const link = (name, value) => {
          const to = new URL(back)
          to.searchParams.set(name, value)
          return to.href.replaceAll('&', '&amp;')
        }
        response.writeHead(200, { 'content-type': 'text/html' })
        return response.end(
          `<h1>Sign in</h1><a href="${link('code', code)}">Allow</a> <a href="${link('error', 'access_denied')}">Deny</a>`,
        )
      }
      case '/token':
        return json({ access_token: TOKEN, token_type: 'Bearer', expires_in: 3600, refresh_token: 'refresh-0001' })
      default:
        return response.writeHead(404).end()
    }
  })
  const origin = () => `http://127.0.0.1:${server.address().port}`
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  test.after(() => server.close())
  return { url: origin(), token: TOKEN }
}
