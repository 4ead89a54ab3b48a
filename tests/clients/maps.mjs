// The server `maps` of the pages: its tool takes objects and a list, and returns what it got.

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { z } from 'zod'

const server = new McpServer({ name: 'maps', version: '1.0.0' })
const place = z.object({ city: z.string() })
const inputSchema = { from: place, to: place, tags: z.array(z.string()) }
server.registerTool('route', { description: 'Finds a route', inputSchema }, ({ from, to, tags }) => ({
  content: [{ type: 'text', text: `from ${from.city} to ${to.city}: ${tags.join(', ')}` }],
}))
await server.connect(new StdioServerTransport())
