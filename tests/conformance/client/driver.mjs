// What the conformance suite starts as the client under test: a fresh gateway with the suite's server registered
// in it, and an agent that uses everything which that server offers through the gateway. The suite judges what its
// server gets to see, which is what the gateway sends.
//
// node driver.mjs TOOLGATE URL, with the scenario in MCP_CONFORMANCE_SCENARIO and its data in MCP_CONFORMANCE_CONTEXT

import assert from 'node:assert/strict';
import { Agent } from './agent.mjs';
import { Gateway } from './gateway.mjs';
import { ModernAgent } from './modern.mjs';
import { argumentsFor } from './sample.mjs';

const [, , program, url] = process.argv;
const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');

const SERVER = 'conf';
const PREFIX = `${SERVER}__`;

/** The calls that the scenario asks for, else one of every tool that is listed. */
function callsFor(tools) {
  if (context.toolCalls) {
    return context.toolCalls.map((call) => ({ ...call, name: PREFIX + call.name }));
  }
  return tools.map((tool) => ({ name: tool.name, arguments: argumentsFor(tool, tools) }));
}

/** All at once: what belongs to one request must not show up in another. */
async function useEverything(agent) {
  const { tools } = await agent.ask('tools/list');
  const { prompts } = await agent.ask('prompts/list');
  const { resources } = await agent.ask('resources/list');
  const answers = await Promise.allSettled([
    ...callsFor(tools).map((call) => agent.ask('tools/call', call)),
    ...prompts.map(({ name }) => agent.ask('prompts/get', { name })),
    ...resources.map(({ uri }) => agent.ask('resources/read', { uri })),
  ]);
  // Not every server of the suite answers what it lists; the suite itself knows whether that is a failure.
  for (const { reason } of answers) if (reason) console.error(reason.message);
}

const gateway = await Gateway.start(program);
try {
  const registered = await gateway.post('/api/v0/servers', { name: SERVER, transport: 'streamable_http', url });
  assert.equal(registered.status, 201, `${scenario}: registering said ${JSON.stringify(registered)}`);
  const endpoint = `${gateway.url}/mcp`;
  // What only modern servers ask for can so far be passed on to modern clients only.
  const agent = scenario.startsWith('sep-2322') ? new ModernAgent(endpoint) : await Agent.connect(endpoint);
  await useEverything(agent);
  await agent.leave();
} finally {
  await gateway.stop();
}
