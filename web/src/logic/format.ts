// The formats of text that a form checks: `email`, `uri`, `date` and `date-time`. Others are left to the server.

const RULES: Record<string, { accepts: (text: string) => boolean; sentence: string }> = {
  email: { accepts: isEmail, sentence: 'must be an email address, such as name@example.com' },
  uri: { accepts: isUri, sentence: 'must be a URI, such as https://example.com/page' },
  date: { accepts: isDate, sentence: 'must be a date, such as 2030-12-31' },
  'date-time': { accepts: isDateTime, sentence: 'must be a date and time, such as 2030-12-31T23:59:00Z' },
}

/** What is wrong with a text in a format; empty if nothing is. */
export function formatProblem(format: unknown, text: string): string {
  const rule = typeof format === 'string' && Object.hasOwn(RULES, format) ? RULES[format] : undefined
  return rule === undefined || rule.accepts(text) ? '' : rule.sentence
}

function isEmail(text: string): boolean {
  return /^[^\s@]+@[^\s@.]+(\.[^\s@.]+)*$/.test(text)
}

function isUri(text: string): boolean {
  return !/\s/.test(text) && URL.canParse(text)
}

export function isDate(text: string): boolean {
  const [, year, month, day] = /^(\d{4})-(\d{2})-(\d{2})$/.exec(text)?.map(Number) ?? []
  if (year === undefined || month === undefined || day === undefined) return false
  // A day that does not exist becomes one of another month. Set this way, years below 100 stay what they are.
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day
}

/** As in RFC 3339: the offset from UTC is required. */
function isDateTime(text: string): boolean {
  const [, date, hour, minute, second, offset] =
    /^(.{10})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.\d+)?([Zz]|[+-]\d{2}:\d{2})$/.exec(text) ?? []
  if (date === undefined || offset === undefined || !isDate(date)) return false
  const isWithin = (part: string | undefined, limit: number) => Number(part) <= limit
  const [offsetHour, offsetMinute] = /^[Zz]$/.test(offset) ? ['0', '0'] : offset.slice(1).split(':')
  return (
    isWithin(hour, 23) &&
    isWithin(minute, 59) &&
    isWithin(second, 60) &&
    isWithin(offsetHour, 23) &&
    isWithin(offsetMinute, 59)
  )
}
