// A user's home folder with a gateway of its own, in which commands are run as in a terminal.

import { execFile, execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify, stripVTControlCharacters } from 'node:util'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

/** The programs that commands find first. */
const PROGRAMS = {
  // The packages are installed, so nothing is downloaded. Usage in a page: npx -y PACKAGE ARGUMENTS.
  npx: `name=$2; shift 2; exec '${process.execPath}' '${join(import.meta.dirname, 'npx.mjs')}' "$name" "$@"`,
  // Fails if the response is an error.
  curl: `exec '${which('curl')}' --fail-with-body --silent --show-error "$@"`,
}

/** The servers that a home can have, as arguments of `toolgate register`. */
const SERVERS = {
  everything: ['--name', 'everything', '--', 'npx', '-y', '@modelcontextprotocol/server-everything'],
  maps: ['--name', 'maps', '--', process.execPath, join(import.meta.dirname, 'maps.mjs')],
}

const open = new Set()
process.on('exit', () => open.forEach((home) => home.close()))

export class Home {
  /** Starts a gateway in a new folder, and registers servers in it. */
  static async open({ enterprise = false, servers = [] } = {}) {
    const home = new Home()
    await home.start(enterprise)
    for (const server of servers) {
      if (!SERVERS[server]) throw new Error(`there is no server ${server} to register`)
      execFileSync('toolgate', ['register', ...SERVERS[server]], { ...home.options(), stdio: 'pipe' })
    }
    return home
  }

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'toolgate-home-'))
    open.add(this)
    const bin = join(this.folder, '.bin')
    mkdirSync(bin)
    symlinkSync(process.env.TOOLGATE, join(bin, 'toolgate'))
    for (const [name, line] of Object.entries(PROGRAMS)) {
      writeFileSync(join(bin, name), `#!/bin/sh\n${line}\n`)
      chmodSync(join(bin, name), 0o755)
    }
    const { LANG = 'C.UTF-8', PATH } = process.env
    // The home is no terminal of the developer's, so nothing else of the environment is passed on.
    this.env = { HOME: this.folder, PATH: bin + delimiter + PATH, LANG, TERM: 'dumb', GITHUB_TOKEN: 'a-token' }
  }

  /** Waits for all lines that the gateway prints when it starts. */
  start(enterprise) {
    const mode = enterprise ? ['--enterprise', '--host', '127.0.0.1'] : []
    const env = { ...this.env, PORT: '0' }
    this.gateway = spawn('toolgate', ['start', ...mode], { ...this.options(), env, stdio: ['ignore', 'pipe', 'pipe'] })
    this.gateway.stdout.setEncoding('utf8')
    this.gateway.stderr.setEncoding('utf8')
    let log = ''
    this.gateway.stderr.on('data', (text) => (log += text))
    return new Promise((resolve, reject) => {
      this.gateway.once('exit', (code) => reject(new Error(`the gateway ended with ${code}: ${log}`)))
      this.greeting = ''
      this.gateway.stdout.on('data', (text) => {
        this.greeting += text
        if (!/^ {2}Servers.*\n/m.test(this.greeting)) return
        this.url = /http:\/\/\S+/.exec(this.greeting)[0]
        this.env.TOOLGATE_REGISTRY = this.url
        resolve()
      })
    })
  }

  options() {
    return { cwd: this.folder, env: this.env, encoding: 'utf8' }
  }

  write(name, text) {
    writeFileSync(join(this.folder, name), text)
  }

  read(name) {
    return readFileSync(join(this.folder, name), 'utf8')
  }

  /** Runs a script of bash in a terminal, answers "y" when it asks for consent, and returns how it ended and all it printed. */
  run(text) {
    this.write('.script', `stty rows 40 cols 120\nshopt -s expand_aliases\nset -e\n${text}\n`)
    const child = spawn('script', ['-qefc', 'bash .script', '/dev/null'], { ...this.options(), stdio: 'pipe' })
    let [printed, asked] = ['', 0]
    const read = (text) => {
      printed += text
      const questions = printed.split('[y/N] ').length - 1
      for (; asked < questions; asked++) child.stdin.write('y\n')
    }
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', read)
    return new Promise((resolve) => child.on('close', (code) => resolve({ code, printed: shown(printed) })))
  }

  /** Checks that a command can be parsed. Words in it may stand for others: `toolgate connect CLIENT [--group NAME]`. */
  async parse(command) {
    const line = command
      .replace(/ -- .*/, '')
      .replace(/[[\]<>…]|\.\.\./g, '')
      .replace(/(\S+?)\|\S+/g, '$1')
      .replace('CLIENT', 'cursor')
    const ended = await promisify(execFile)('bash', ['-c', `${line} --help`], this.options()).catch((error) => error)
    if (ended.code) throw new Error(`\`${command}\` is not a command: ${ended.stderr}`)
  }

  /** Lists tools as an MCP client that has this entry in its configuration. */
  async toolsOf(entry) {
    const url = entry.url ?? entry.serverUrl ?? entry.httpUrl
    const requestInit = { headers: entry.headers ?? entry.http_headers ?? {} }
    const transport = url
      ? new StreamableHTTPClientTransport(new URL(url), { requestInit })
      : new StdioClientTransport({ ...this.options(), ...entry, env: { ...this.env, ...entry.env }, stderr: 'ignore' })
    const client = new Client({ name: 'home', version: '1.0.0' })
    await client.connect(transport)
    const { tools } = await client.listTools()
    await client.close()
    return tools.map((tool) => tool.name)
  }

  close() {
    this.gateway?.kill('SIGKILL')
    rmSync(this.folder, { recursive: true, force: true })
    open.delete(this)
  }
}

/** What a terminal shows in the end: without colours, and without lines that were overwritten. */
function shown(printed) {
  const lines = stripVTControlCharacters(printed).replaceAll('\r\n', '\n').split('\n')
  return lines.map((line) => line.slice(line.lastIndexOf('\r') + 1).trimEnd())
}

function which(program) {
  return execFileSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).trim()
}
