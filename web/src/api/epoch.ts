// The epoch of the last change that this page made. Later requests name it, so that they see that change whichever gateway
// behind a load balancer receives them.

/** Every change counts at all gateways after 2 seconds; an older epoch may belong to a database that was replaced since. */
const LIFE_MS = 10_000

export class LastEpoch {
  private seen: { epoch: number; time: number } | undefined

  constructor(private readonly now: () => number = Date.now) {}

  /** The epoch that a request has to name, if any. */
  get(): number | undefined {
    if (!this.seen) return undefined
    const age = this.now() - this.seen.time
    return age >= 0 && age < LIFE_MS ? this.seen.epoch : undefined
  }

  note(epoch: number): void {
    if (!Number.isSafeInteger(epoch) || (this.get() ?? -1) >= epoch) return
    this.seen = { epoch, time: this.now() }
  }

  forget(): void {
    this.seen = undefined
  }
}

const last = new LastEpoch()

/** `fetch` for the gateway: the response includes all changes that this page made before. */
export async function fetchCurrent(path: string, init: RequestInit): Promise<Response> {
  const epoch = last.get()
  const headers = new Headers(init.headers)
  if (epoch !== undefined) headers.set('x-toolgate-min-epoch', String(epoch))
  let answer = await fetch(path, { ...init, headers })
  if (answer.headers.get('x-error-code') === 'unknown_epoch') {
    // The gateway has another database than before.
    last.forget()
    answer = await fetch(path, init)
  }
  const made = answer.headers.get('x-toolgate-epoch')
  if (made !== null) last.note(Number(made))
  return answer
}
