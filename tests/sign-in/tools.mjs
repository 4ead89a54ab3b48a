// What every client does with the gateway once it is signed in.

import assert from 'node:assert/strict'

export async function useTools(client) {
  const { tools } = await client.listTools()
  assert.ok(tools.some(({ name }) => name === 'fixture__test_simple_text'))
  const result = await client.callTool({ name: 'fixture__test_simple_text', arguments: {} })
  assert.match(result.content[0].text, /simple text/)
}
