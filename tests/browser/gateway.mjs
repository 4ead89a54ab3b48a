// Gateways and servers for one test: real programs on free ports, in their own folder, which end with the test.

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const { TOOLGATE, FAKE_UPSTREAM } = process.env

/** Starts a program and waits for the first address that it prints. */
async function start(test, command, args, options = {}) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'], ...options })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  test.after(async () => {
    child.kill('SIGTERM')
    await ended
  })
  for await (const line of createInterface({ input: child.stdout })) {
    const address = /http:\/\/\S+/.exec(line)?.[0]
    if (address) {
      // Later output is read and dropped, so that the program never blocks on a full pipe.
      child.stdout.resume()
      return { child, ended, address }
    }
  }
  throw new Error(`${command} ended before it said its address`)
}

export async function startGateway(test, variables = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'toolgate-browser-'))
  const gateway = await startIn(test, folder, variables)
  test.after(() => rmSync(folder, { recursive: true, force: true }))
  return gateway
}

/** Starts a gateway on the data of an earlier one. */
export async function startIn(test, folder, variables = {}) {
  const env = { PATH: process.env.PATH, HOME: folder, PORT: '0', ...variables }
  const { child, ended, address } = await start(test, TOOLGATE, ['start'], { cwd: folder, env })
  return new Gateway(address, child, ended, folder)
}

class Gateway {
  constructor(url, child, ended, folder) {
    Object.assign(this, { url, child, ended, folder })
  }

  async ask(method, path, body) {
    const answer = await fetch(this.url + path, { method, body: body === undefined ? undefined : JSON.stringify(body) })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  register(input) {
    return this.ask('POST', '/api/v0/servers', input)
  }

  async stop() {
    this.child.kill('SIGTERM')
    await this.ended
  }

  /** Calls a tool over REST; it may fail. */
  call(name, args = {}) {
    return this.ask('POST', '/api/v0/tools/invoke', { name, ...args }).catch(() => undefined)
  }

  /** The records of calls, newest first, once there are so many. */
  async calls(least, query = '') {
    const deadline = Date.now() + 30_000
    for (;;) {
      const { calls } = await this.ask('GET', `/api/v0/calls?${query}`)
      if (calls.length >= least) return calls
      if (Date.now() > deadline) throw new Error(`only ${calls.length} calls are recorded, not ${least}`)
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

/** The command line of the fake upstream as a process. */
export function fakeCommand(behaviour = {}) {
  return { command: FAKE_UPSTREAM, args: ['--stdio', '--config', JSON.stringify({ era: 'legacy', ...behaviour })] }
}

/** The same, started by a shell, with arguments that the fake upstream does not see. */
export function fakeCommandWith(more, behaviour = {}) {
  const { command, args } = fakeCommand(behaviour)
  const line = [command, ...args].map((word) => `'${word}'`).join(' ')
  return { command: 'sh', args: ['-c', `exec ${line}`, ...more] }
}

export function stdio(name, behaviour = {}, more = {}) {
  return { name, transport: 'stdio', ...fakeCommand(behaviour), ...more }
}

/** The fake upstream over HTTP; `stop` ends it. */
export async function startFake(test, behaviour = {}, port = 0) {
  const config = JSON.stringify({ era: 'legacy', ...behaviour })
  const { child, ended, address } = await start(test, FAKE_UPSTREAM, ['--http', String(port), '--config', config])
  return {
    url: address,
    port: Number(new URL(address).port),
    async stop() {
      child.kill('SIGKILL')
      await ended
    },
  }
}

/** A tool definition as servers send it. */
export function tool(name, description, properties = {}, required = []) {
  return { name, description, inputSchema: { type: 'object', properties, required } }
}
