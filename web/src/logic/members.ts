// The tools that a group with a given configuration shows, and how a click on a tool or server changes it. For saved
// groups the gateway computes the same.

export interface Configuration {
  included_servers: string[]
  included_tools: string[]
  excluded_tools: string[]
}

interface Member {
  canonical_name: string
  server: string
  enabled: boolean
}

export function isIncluded(group: Configuration, tool: Member): boolean {
  const inside = group.included_servers.includes(tool.server) || group.included_tools.includes(tool.canonical_name)
  return inside && !group.excluded_tools.includes(tool.canonical_name)
}

/** The tools that the group would show now. */
export function effective<T extends Member>(group: Configuration, tools: T[]): T[] {
  return tools.filter((tool) => tool.enabled && isIncluded(group, tool))
}

/** The tools of each server; servers in `servers` are included even without tools. */
export function byServer<T extends Member>(servers: string[], tools: T[]): [string, T[]][] {
  const sorted = new Map<string, T[]>(servers.map((server) => [server, []]))
  for (const tool of tools) {
    const others = sorted.get(tool.server)
    if (others) others.push(tool)
    else sorted.set(tool.server, [tool])
  }
  return [...sorted]
}

export function toggleTool<C extends Configuration>(group: C, tool: Member): C {
  const name = tool.canonical_name
  const viaServer = group.included_servers.includes(tool.server)
  const without = (list: string[]) => list.filter((one) => one !== name)
  if (isIncluded(group, tool)) {
    const excluded = viaServer ? [...group.excluded_tools, name] : group.excluded_tools
    return { ...group, included_tools: without(group.included_tools), excluded_tools: excluded }
  }
  const included = viaServer ? group.included_tools : [...without(group.included_tools), name]
  return { ...group, included_tools: included, excluded_tools: without(group.excluded_tools) }
}

/** Includes all tools of a server, also future ones, or none of them. */
export function toggleServer<C extends Configuration>(group: C, server: string): C {
  const others = (list: string[]) => list.filter((name) => !name.startsWith(`${server}__`))
  const isIn = group.included_servers.includes(server)
  const servers = group.included_servers.filter((name) => name !== server)
  return {
    ...group,
    included_servers: isIn ? servers : [...servers, server],
    included_tools: others(group.included_tools),
    excluded_tools: others(group.excluded_tools),
  }
}
