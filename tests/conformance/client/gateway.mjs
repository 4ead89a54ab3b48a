// A gateway for one scenario, with its own folder and port. It ends with the scenario.

import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

export class Gateway {
  constructor(child, folder, url) {
    Object.assign(this, { child, folder, url })
  }

  static async start(program, variables) {
    const folder = await mkdtemp(join(tmpdir(), 'toolgate-conformance-'))
    const words = ['start', '--host', '127.0.0.1', '--port', '0', '--sqlite-db-path', 'toolgate.db']
    // Its log becomes part of the suite's log of the scenario.
    const env = { ...process.env, ...variables }
    const child = spawn(program, words, { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
    for await (const line of createInterface({ input: child.stdout })) {
      const url = line.split(/\s+/).find((word) => word.startsWith('http://'))
      if (!url) continue
      child.stdout.resume()
      return new Gateway(child, folder, url.replace(/\/$/, ''))
    }
    throw new Error('the gateway ended before it said its address')
  }

  async post(path, body) {
    const response = await fetch(this.url + path, { method: 'POST', body: JSON.stringify(body) })
    return { status: response.status, headers: Object.fromEntries(response.headers), body: await response.json() }
  }

  async get(path) {
    const response = await fetch(this.url + path)
    return response.json()
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve))
    this.child.kill('SIGTERM')
    await ended
    await rm(this.folder, { recursive: true, force: true })
  }
}
