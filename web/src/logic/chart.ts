// The geometry of the small charts: scales, ticks, and the words of a time axis.

/** The least of 1, 2 and 5 times a power of ten that is not less. */
export function niceTop(most: number): number {
  if (!(most > 0)) return 1
  const unit = 10 ** Math.floor(Math.log10(most))
  const factor = [1, 2, 5, 10].find((one) => one * unit >= most * 0.999_999) ?? 10
  return Number((factor * unit).toPrecision(6))
}

/** The values at which a scale from 0 has lines. */
export function ticks(top: number): number[] {
  return [0, top / 2, top]
}

/** A line through the points, with a gap wherever a value is missing. */
export function linePath(
  values: (number | undefined)[],
  x: (at: number) => number,
  y: (value: number) => number,
): string {
  let path = ''
  let isOpen = false
  values.forEach((value, at) => {
    if (value === undefined) {
      isOpen = false
      return
    }
    path += `${isOpen ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`
    isOpen = true
  })
  return path
}

/** Whether a point is between gaps, so that no line goes through it. */
export function isAlone(values: (number | undefined)[], at: number): boolean {
  return values[at] !== undefined && values[at - 1] === undefined && values[at + 1] === undefined
}

/** The time of a point: the time of day, with the day if the window is longer than one. */
export function pointTime(at: string, windowSeconds: number): string {
  const then = new Date(at)
  const time = then.toLocaleTimeString('en', { hourCycle: 'h23', hour: '2-digit', minute: '2-digit' })
  if (windowSeconds <= 86_400) return time
  return `${then.toLocaleDateString('en', { month: 'short', day: 'numeric' })}, ${time}`
}

/** A number of few digits: `1.2`, `34`, `5,600`. */
export function short(value: number): string {
  if (value >= 10 || Number.isInteger(value)) return Math.round(value).toLocaleString('en')
  return value.toFixed(value >= 1 ? 1 : 2).replace(/\.?0+$/, '')
}

/** A duration at the end of a scale, which is a round number. */
export function tickTime(ms: number): string {
  const [value, unit] = ms >= 60_000 ? [ms / 60_000, ' min'] : ms >= 1000 ? [ms / 1000, ' s'] : [ms, ' ms']
  return ms === 0 ? '0' : `${Number(value.toPrecision(3)).toLocaleString('en')}${unit}`
}
