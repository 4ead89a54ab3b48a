// A gateway in enterprise mode with one server, behind a front with the public address: this is known before the gateway
// starts, which takes a free port.

import { readFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { folder, Program } from './programs.mjs'

const { TOOLGATE, FIXTURE, CERTIFICATE, KEY } = process.env
const ADDRESS = /(http:\/\/[^\s/]+)/

/** The certificate of the tests for `localhost`, and its key. */
export function identity() {
  return { cert: readFileSync(CERTIFICATE), key: readFileSync(KEY) }
}

/** Starts a gateway. `settings` gives its variables for a public address; `isSafe` makes that one https. */
export async function startGateway(test, settings = () => ({}), { isSafe = false } = {}) {
  const front = await startFront(test, isSafe)
  const fixture = new Program(test, FIXTURE, ['--http', '0'])
  const variables = {
    SERVER_MODE: 'enterprise',
    HOST: '127.0.0.1',
    PORT: '0',
    PUBLIC_URL: front.url,
    SSL_CERT_FILE: CERTIFICATE,
    OAUTH_CLIENT_HOSTS: 'localhost',
    ...(await settings(front.url)),
  }
  const home = folder(test)
  const env = { PATH: process.env.PATH, HOME: home, ...variables }
  const program = new Program(test, TOOLGATE, ['start'], { cwd: home, env })
  const address = await program.until(ADDRESS)
  front.leadTo(new URL(address).port)
  const gateway = new Gateway(front.url)
  gateway.token = (await gateway.ask('POST', '/init', {})).admin_access_token
  const url = `${await fixture.until(ADDRESS)}/mcp`
  await gateway.ask('POST', '/api/v0/servers', { name: 'fixture', transport: 'streamable_http', url })
  return gateway
}

class Gateway {
  constructor(url) {
    this.url = url
  }

  async ask(method, path, body) {
    const headers = this.token ? { authorization: `Bearer ${this.token}` } : {}
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  /** The grants of software with a name. */
  async grantsOf(name) {
    return (await this.ask('GET', '/api/v0/grants')).filter((grant) => grant.client_name === name)
  }

  /** Creates a user, and returns their token. */
  async createUser(username) {
    return (await this.ask('POST', '/api/v0/users', { username })).access_token
  }
}

/** Passes connections on to a port that is named later. */
async function startFront(test, isSafe) {
  let port
  const sockets = new Set()
  const pass = (socket) => {
    const onward = connect(port, '127.0.0.1')
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ]) {
      sockets.add(one)
      one.on('error', () => other.destroy()).on('close', () => (sockets.delete(one), other.destroy()))
      one.pipe(other)
    }
  }
  const server = isSafe ? createTlsServer(identity(), pass) : createServer(pass)
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  test.after(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const origin = isSafe ? 'https://localhost' : 'http://127.0.0.1'
  return { url: `${origin}:${server.address().port}`, leadTo: (found) => (port = found) }
}
