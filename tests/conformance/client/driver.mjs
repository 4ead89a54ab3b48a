// The client that the conformance suite starts and tests: a fresh gateway in which the suite's server is registered, and
// an agent that uses everything that this server offers through the gateway. The suite checks what its server receives,
// which is what the gateway sends.
//
// node driver.mjs TOOLGATE URL, with the scenario in MCP_CONFORMANCE_SCENARIO and its data in MCP_CONFORMANCE_CONTEXT

import { Agent } from './agent.mjs'
import { Gateway } from './gateway.mjs'
import { ModernAgent, VERSION as MODERN } from './modern.mjs'
import { authorize } from './person.mjs'
import { argumentsFor } from './sample.mjs'

const [, , program, url] = process.argv
const scenario = process.env.MCP_CONFORMANCE_SCENARIO
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}')

const SERVER = 'conf'
const PREFIX = `${SERVER}__`
// The suite expects the client's metadata at this address.
const PUBLIC_URL = 'https://conformance-test.local'
// Maximum number of authorizations before the driver gives up.
const PATIENCE = 3

/** The calls that the scenario asks for; otherwise one call of each listed tool. */
function callsFor(tools) {
  if (context.toolCalls) {
    return context.toolCalls.map((call) => ({ ...call, name: PREFIX + call.name }))
  }
  return tools.map((tool) => ({ name: tool.name, arguments: argumentsFor(tool, tools) }))
}

/** Makes all calls at once, since messages of one request must not appear in another. Returns the failures. */
async function useEverything(agent) {
  const { tools } = await agent.ask('tools/list')
  const { prompts } = await agent.ask('prompts/list')
  const { resources } = await agent.ask('resources/list')
  const answers = await Promise.allSettled([
    ...callsFor(tools).map((call) => agent.ask('tools/call', call)),
    ...prompts.map(({ name }) => agent.ask('prompts/get', { name })),
    ...resources.map(({ uri }) => agent.ask('resources/read', { uri })),
  ])
  return answers.filter(({ reason }) => reason).map(({ reason }) => reason.message)
}

function registration() {
  const plain = { name: SERVER, transport: 'streamable_http', url }
  if (!scenario.startsWith('auth/')) return plain
  const client = { oauth_client_id: context.client_id, oauth_client_secret: context.client_secret }
  // Without a person there is no redirect.
  const alone = scenario.startsWith('auth/client-credentials')
  return { ...plain, ...client, oauth_redirect_uri: alone ? undefined : `${PUBLIC_URL}/api/dashboard/oauth/callback` }
}

/** Does the authorization if it is required; returns true if the server is then registered. */
async function settle(gateway, answer) {
  if (answer.status === 202) {
    const { session_id, authorization_url } = answer.body.authorization_required
    const brought = await authorize(authorization_url)
    answer = await gateway.post(`/api/v0/upstream_oauth/sessions/${session_id}/complete`, brought)
  }
  if (answer.status !== 201) console.error(`${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.status === 201
}

async function register(gateway) {
  for (let attempt = 1; attempt <= PATIENCE; attempt += 1) {
    if (await settle(gateway, await gateway.post('/api/v0/servers', registration()))) return true
    if (!scenario.startsWith('auth/')) break
  }
  return false
}

/** Authorizes the server again if it requires more scopes. */
async function run(gateway) {
  if (!(await register(gateway))) return
  const endpoint = `${gateway.url}/mcp`
  // In the era of the server: the suite checks what a client of that era sends.
  const { protocol_version } = await gateway.get(`/api/v0/servers/${SERVER}`)
  const agent = protocol_version === MODERN ? new ModernAgent(endpoint) : await Agent.connect(endpoint)
  for (let attempt = 1; attempt < PATIENCE; attempt += 1) {
    const problems = await useEverything(agent)
    // Some servers of the suite do not answer all that they list; the suite itself decides whether that is a failure.
    problems.forEach((problem) => console.error(problem))
    if (!problems.some((problem) => problem.includes('authorization required'))) break
    if (!(await settle(gateway, await gateway.post(`/api/v0/servers/${SERVER}/reauthorize`, {})))) break
  }
  await agent.leave()
}

const gateway = await Gateway.start(program, scenario.startsWith('auth/') ? { PUBLIC_URL } : {})
try {
  await run(gateway)
} finally {
  await gateway.stop()
}
