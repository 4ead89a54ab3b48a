// Starts programs for one test. They end with the test.

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Long enough for a busy machine. */
export const PATIENCE = 60_000

/** What a program prints. */
export class Output {
  text = ''
  #isOver = false
  #readers = new Set()

  constructor(name) {
    this.name = name
  }

  read(text) {
    this.text += text
    for (const look of this.#readers) look()
  }

  end() {
    this.#isOver = true
    this.read('')
  }

  /** Waits for a match of the pattern, and returns what its first group matches. */
  until(pattern) {
    return new Promise((resolve, reject) => {
      const fail = (what) => reject(new Error(`${this.name} ${what} ${pattern}: ${this.text}`))
      const patience = setTimeout(() => fail('does not print'), PATIENCE)
      const look = () => {
        const found = pattern.exec(this.text)
        if (!found && !this.#isOver) return
        this.#readers.delete(look)
        clearTimeout(patience)
        if (found) resolve(found[1])
        else fail('ended before it printed')
      }
      this.#readers.add(look)
      look()
    })
  }
}

export class Program {
  constructor(test, command, args, options = {}) {
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'], ...options })
    this.output = new Output([command, ...args].join(' '))
    this.ended = new Promise((resolve) => this.child.once('close', resolve))
    this.child.once('error', (error) => this.output.read(error.message))
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => this.output.read(text))
    }
    void this.ended.then(() => this.output.end())
    test.after(() => this.stop())
  }

  until(pattern) {
    return this.output.until(pattern)
  }

  async stop() {
    this.child.kill('SIGTERM')
    const force = setTimeout(() => this.child.kill('SIGKILL'), PATIENCE / 6)
    await this.ended
    clearTimeout(force)
  }
}

/** An empty folder that is removed after the test. */
export function folder(test) {
  const path = mkdtempSync(join(tmpdir(), 'toolgate-sign-in-'))
  test.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** A free port, for programs that want to be told one. */
export async function freePort() {
  const server = createServer()
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return String(port)
}
