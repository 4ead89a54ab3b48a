// Configuration snippets that connect the usual clients to the gateway.

export interface Snippet {
  client: string
  /** Where to paste it. */
  place: string
  text: string
  remark?: string
  /** A link that makes the client ask whether to add the gateway. */
  link?: string
}

/** Makes the snippets for an MCP endpoint of the gateway: that of all servers, or that of a group. */
export function snippets(url: string, group = ''): Snippet[] {
  const json = (value: unknown) => JSON.stringify(value, null, 2)
  const name = group || 'toolgate'
  const gateway = url.replace(/(\/v0\/groups\/[^/]+)?\/mcp$/, '')
  const flags = ['--registry', gateway, ...(group ? ['--group', group] : [])]
  const connect = ['toolgate connect claude-desktop', ...flags, ...(group ? ['--name', name] : [])].join(' ')
  return [
    { client: 'Claude Code', place: 'In a terminal', text: `claude mcp add --transport http ${name} ${url}` },
    {
      client: 'Claude Desktop',
      place: 'claude_desktop_config.json, under Settings, Developer, Edit Config',
      // The entry that `toolgate connect claude-desktop` writes, except for the path of the program.
      text: json({ mcpServers: { [name]: { command: 'toolgate', args: ['stdio', ...flags] } } }),
      remark: `If toolgate is not in the PATH, give its full path as the command, or let this command write the entry: ${connect}. Restart Claude Desktop afterwards.`,
    },
    {
      client: 'Cursor',
      place: '~/.cursor/mcp.json',
      text: json({ mcpServers: { [name]: { url } } }),
      link: `cursor://anysphere.cursor-deeplink/mcp/install?${new URLSearchParams({ name, config: btoa(JSON.stringify({ url })) })}`,
    },
    {
      client: 'VS Code',
      place: '.vscode/mcp.json',
      text: json({ servers: { [name]: { type: 'http', url } } }),
      link: `vscode:mcp/install?${encodeURIComponent(JSON.stringify({ name, type: 'http', url }))}`,
    },
    {
      client: 'ChatGPT',
      place: 'Settings, Apps & Connectors, Advanced, Developer mode, then Create',
      text: url,
      remark:
        'ChatGPT connects from the internet, so the gateway needs a public https URL. Start it with PUBLIC_URL set to that URL.',
    },
    {
      client: 'Python',
      place: 'pip install "mcp>=2"',
      text: `import asyncio
from mcp import Client

async def main():
    async with Client("${url}") as client:
        for tool in (await client.list_tools()).tools:
            print(tool.name)

asyncio.run(main())`,
    },
    {
      client: 'TypeScript',
      place: 'npm install @modelcontextprotocol/client',
      text: `import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const client = new Client({ name: "my-client", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL("${url}")));
for (const tool of (await client.listTools()).tools) console.log(tool.name);
await client.close();`,
    },
  ]
}
