// The identity provider of the tests: `oidc-provider`, with its own pages for signing in and for consent.
// Usage: provider_program.mjs REDIRECT_URI SECRET. Prints its address.

import { createServer } from 'node:http'
import Provider from 'oidc-provider'

const [redirectUri, secret] = process.argv.slice(2)

/** The groups of people by their login. Any password is right. */
const PEOPLE = { anna: ['engineering'], boris: ['support'] }

const server = createServer()
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const issuer = `http://localhost:${server.address().port}`
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'toolgate',
      client_secret: secret,
      redirect_uris: [redirectUri],
      grant_types: ['authorization_code', 'refresh_token'],
    },
  ],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email'] },
  cookies: { keys: ['of the tests'] },
  findAccount: (_context, id) => PEOPLE[id] && { accountId: id, claims: () => claims(id) },
  // By default it wants `prompt=consent` besides the scope `offline_access`; others do not.
  issueRefreshToken: (_context, client) => client.grantTypeAllowed('refresh_token'),
  features: { devInteractions: { enabled: true } },
})
server.on('request', provider.callback())
console.log(`listens on ${issuer}`)

function claims(id) {
  return { sub: id, preferred_username: id, email: `${id}@example.com`, groups: PEOPLE[id] }
}
