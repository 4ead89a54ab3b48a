// Runs what the command line tells a user to do next, as it is printed: commands, and configurations for MCP clients.
// Usage: printed.mjs GATEWAY, with TOOLGATE and PYTHON set. It stops at the first failure.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { Home } from './home.mjs'

/** The clients of `toolgate connect`, and their files below the home folder. */
const FILES = {
  'claude-code': '.claude.json',
  'claude-desktop': '.config/Claude/claude_desktop_config.json',
  cursor: '.cursor/mcp.json',
  vscode: '.config/Code/User/mcp.json',
  windsurf: '.codeium/windsurf/mcp_config.json',
  codex: '.codex/config.toml',
  gemini: '.gemini/settings.json',
}
const EXPECTED = 'everything__echo'
const REGISTER = 'toolgate register --name everything -- npx -y @modelcontextprotocol/server-everything'

/** Runs a command, and checks that each command in its output can be parsed. Returns the output. */
async function tell(home, line, expected = 0) {
  const { code, printed } = await home.run(line)
  const text = printed.join('\n')
  assert.equal(code, expected, `\`${line}\` ended with ${code}:\n${text}`)
  for (const command of commandsIn(text)) await home.parse(command)
  return text
}

const commandsIn = (text) => [
  ...[...text.matchAll(/`(toolgate [^`]+)`/g)].map(([, command]) => command),
  ...[...text.matchAll(/^ +(toolgate [a-z].*)$/gm)].map(([, command]) => command),
]

async function reaches(home, entry, what) {
  const tools = await home.toolsOf(entry)
  assert.ok(tools.includes(EXPECTED), `${what} does not reach ${EXPECTED}, but ${tools}`)
}

/** The entry in the file of a client. */
function entryOf(home, client) {
  const text = home.read(FILES[client])
  const script = 'import json, sys, tomllib; print(json.dumps(tomllib.loads(sys.stdin.read())))'
  const options = { input: text, encoding: 'utf8' }
  const file = JSON.parse(client === 'codex' ? execFileSync(process.env.PYTHON, ['-c', script], options) : text)
  return (file.mcpServers ?? file.servers ?? file.mcp_servers).toolgate
}

async function inDevelopmentMode() {
  const home = await Home.open()
  for (const line of ['toolgate list servers', 'toolgate list tools', 'toolgate list groups', 'toolgate status'])
    await tell(home, line)
  const [next] = commandsIn(await tell(home, REGISTER))
  assert.match(await tell(home, next), new RegExp(EXPECTED))
  // With a flag for the gateway, the next command has it, too.
  delete home.env.TOOLGATE_REGISTRY
  await tell(home, `toolgate --registry ${home.url} rm everything`)
  const [elsewhere] = commandsIn(await tell(home, REGISTER.replace('toolgate', `toolgate --registry ${home.url}`)))
  assert.match(await tell(home, elsewhere), new RegExp(EXPECTED))
  home.env.TOOLGATE_REGISTRY = home.url
  const [example] = commandsIn(await tell(home, `toolgate usage ${EXPECTED}`))
  assert.match(await tell(home, example), /Echo: /)
  await tell(home, `toolgate disable tool ${EXPECTED}`)
  const [remedy] = commandsIn(await tell(home, `toolgate why ${EXPECTED}`))
  await tell(home, remedy)
  await tell(home, 'toolgate create group dev --included-servers everything')
  await tell(home, 'toolgate register --keep --name broken -- no-such-program')
  for (const line of ['toolgate status', 'toolgate why broken', 'toolgate list servers']) await tell(home, line)
  for (const line of ['toolgate doctor', 'toolgate invoke everything__ecko', 'toolgate list users'])
    await tell(home, line, 1)
  for (const client of Object.keys(FILES)) {
    await tell(home, `toolgate connect ${client}`)
    await reaches(home, entryOf(home, client), client)
    await tell(home, `toolgate disconnect ${client}`)
  }
  const shown = await tell(home, 'toolgate connect cursor --file new.json --dry-run')
  const added = [...shown.matchAll(/^ +\d+ \+ (.*)$/gm)].map(([, line]) => line).join('\n')
  await reaches(home, JSON.parse(added).mcpServers.toolgate, 'the difference for Cursor')
  home.close()
}

async function inEnterpriseMode() {
  const home = await Home.open({ enterprise: true })
  const [init] = commandsIn(home.greeting)
  await tell(home, 'toolgate list servers', 1)
  await tell(home, init)
  await tell(home, REGISTER)
  await tell(home, 'toolgate create user anna')
  const created = await tell(home, 'toolgate create mcp-client my-agent --allow everything')
  const [file] = /^\{$[^]*?^\}$/m.exec(created)
  await reaches(home, JSON.parse(file).mcpServers.toolgate, 'the file')
  const [, url, token] = /^claude mcp add --transport http toolgate (\S+) --header "Authorization: Bearer (.+)"$/m.exec(
    created,
  )
  await reaches(home, { url, headers: { Authorization: `Bearer ${token}` } }, 'the command for Claude Code')
  await tell(home, 'toolgate connect cursor', 1)
  await tell(home, `toolgate connect cursor --token ${token}`)
  await reaches(home, entryOf(home, 'cursor'), 'Cursor')
  home.close()
}

await inDevelopmentMode()
await inEnterpriseMode()
console.log('  what the command line prints works')
process.exit(0)
