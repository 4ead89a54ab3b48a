// URI templates (RFC 6570), as far as resource templates use them: their variables, and expansion to a URI.

const EXPRESSION = /\{([+#./;?&]?)([^}]+)\}/g

export function variables(template: string): string[] {
  const found = [...template.matchAll(EXPRESSION)].flatMap((match) => names(match[2] ?? ''))
  return [...new Set(found.map((one) => one.name))]
}

export function expand(template: string, given: Record<string, string>): string {
  return template.replace(EXPRESSION, (_, operator: string, list: string) => {
    const parts = names(list).filter((one) => (given[one.name] ?? '') !== '')
    const encoded = parts.map((one) => {
      const value = given[one.name] ?? ''
      // `+` and `#` do not encode reserved characters; with a star, slashes in the value separate path segments.
      const text = '+#'.includes(operator) && operator ? encodeURI(value) : encode(value, one.explode)
      return ';?&'.includes(operator) && operator ? `${one.name}=${text}` : text
    })
    if (encoded.length === 0) return ''
    const separator =
      ({ '': ',', '+': ',', '#': ',' } as Record<string, string>)[operator] ?? (operator === '?' ? '&' : operator)
    const first = operator === '+' ? '' : operator
    return first + encoded.join(separator)
  })
}

function names(list: string): { name: string; explode: boolean }[] {
  return list.split(',').map((part) => ({ name: part.replace(/\*$|:\d+$/, ''), explode: part.endsWith('*') }))
}

function encode(value: string, explode: boolean): string {
  return explode ? value.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(value)
}
