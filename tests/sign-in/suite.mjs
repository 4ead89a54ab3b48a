// The official conformance suite tests the gateway as an authorization server, and a person goes where the suite sends them.
// Run by `cargo xtask conformance authorization`, which reads the results.

import { test } from 'node:test'
import { startGateway } from './gateway.mjs'
import { person } from './person.mjs'
import { freePort, Program } from './programs.mjs'
import { withProvider } from './provider.mjs'

const { SUITE, RESULTS } = process.env

for (const resource of ['/mcp', undefined]) {
  test(`the suite asks for ${resource ?? 'every endpoint'}`, async (t) => {
    const gateway = await startGateway(t, withProvider(t))
    const port = await freePort()
    const metadata = {
      client_name: 'Conformance suite',
      redirect_uris: [`http://127.0.0.1:${port}/callback`],
      token_endpoint_auth_method: 'none',
    }
    const headers = { 'content-type': 'application/json' }
    const registration = { method: 'POST', headers, body: JSON.stringify(metadata) }
    const { client_id: clientId } = await (await fetch(`${gateway.url}/register`, registration)).json()
    const results = `${RESULTS}/${resource ? 'endpoint' : 'everything'}`
    const line = [SUITE, 'authorization', '--url', gateway.url, '--client-id', clientId, '--port', port, '-o', results]
    if (resource) line.push('--resource', gateway.url + resource)
    const suite = new Program(t, process.execPath, line)
    const anna = await person(t, gateway)
    await anna.open(await suite.until(/^(http\S+\/authorize\?\S+)/m))
    await anna.signInAtProvider('anna')
    await anna.allow('Conformance suite', { endpoint: resource ?? '' })
    await suite.ended
  })
}
