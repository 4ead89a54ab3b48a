// The calls that the Activity page shows: the newest are read, later ones come as a stream, older ones are read on demand.
// What the stream misses is read again from time to time, so that the list is complete also after an interruption.

import { api, paths, sentence, type Call } from '../api/client'
import { merged, notIn, pageParameters } from '../logic/calls'

/** How many calls are read at once. */
const PAGE = 100
/** How many calls the live list keeps, and how many it can be extended to. */
const KEPT = 1000
const MOST = 10_000
/** When the newest calls are read again: soon after the stream began, since calls may end meanwhile, and then regularly. */
const SOON_MS = 1000
const REGULARLY_MS = 10_000
const RETRY_MS = 2000

export class Calls {
  /** Newest first. */
  list = $state.raw<Call[]>([])
  /** Calls that came while the list is held. */
  held = $state.raw<Call[]>([])
  isLoading = $state(true)
  error = $state('')
  /** Whether the stream is interrupted. */
  isLost = $state(false)
  /** Whether there are older calls. */
  hasOlder = $state(false)
  isLoadingOlder = $state(false)
  olderError = $state('')
  isFull = $derived(this.list.length >= MOST)

  private isHeld = false
  private arrived: Call[] = []
  private frame = 0
  private again: ReturnType<typeof setTimeout> | undefined
  private retry: ReturnType<typeof setTimeout> | undefined
  private source: EventSource | undefined
  private abort = new AbortController()

  /** The parameters select the calls; `isPast` says that no later call can fit. */
  constructor(
    private readonly parameters: URLSearchParams,
    private readonly isPast: boolean,
  ) {}

  start(): void {
    void this.read()
    if (!this.isPast) this.listen()
  }

  stop(): void {
    this.abort.abort()
    this.source?.close()
    clearTimeout(this.retry)
    clearTimeout(this.again)
    cancelAnimationFrame(this.frame)
  }

  /** Holds new calls back, or shows those that were held. */
  hold(isHeld: boolean): void {
    if (this.isHeld === isHeld) return
    this.isHeld = isHeld
    if (!isHeld) this.release()
  }

  /** Shows the calls that were held. */
  release(): void {
    const { held } = this
    this.held = []
    this.show(held)
  }

  retryNow(): void {
    this.error = ''
    this.isLoading = true
    void this.read()
  }

  async older(): Promise<void> {
    const last = this.list.at(-1)
    if (!last || !this.hasOlder || this.isLoadingOlder || this.isFull) return
    this.isLoadingOlder = true
    try {
      const { calls, next } = await this.ask(last.id)
      // The end of the list may have been cut off meanwhile.
      if (this.list.at(-1)?.id === last.id) {
        this.list = merged(this.list, calls)
        this.hasOlder = next !== null
      }
      this.olderError = ''
    } catch (error) {
      if (!this.abort.signal.aborted) this.olderError = sentence(error)
    } finally {
      this.isLoadingOlder = false
    }
  }

  private ask(before?: string) {
    return api.calls(pageParameters(this.parameters, PAGE, before), this.abort.signal)
  }

  /** Reads the newest calls. */
  private async read(): Promise<void> {
    try {
      const { calls, next } = await this.ask()
      const known = [...this.list, ...this.held]
      const fresh = notIn(known, calls)
      if (known.length > 0 && fresh.length === PAGE) {
        // So many were missed that there is a gap.
        this.list = calls
        this.held = []
        this.hasOlder = next !== null
      } else if (this.list.length === 0) {
        this.list = merged(calls, this.held)
        this.held = []
        this.hasOlder = next !== null
      } else {
        this.take(fresh)
      }
      this.error = ''
    } catch (error) {
      if (this.abort.signal.aborted) return
      if (this.list.length === 0) this.error = sentence(error)
    }
    this.isLoading = false
  }

  private listen(): void {
    const source = new EventSource(paths.calls(this.parameters))
    this.source = source
    source.onopen = () => {
      if (this.isLost) void this.read()
      this.isLost = false
      this.readAgain(SOON_MS)
    }
    source.onerror = () => {
      this.isLost = true
      clearTimeout(this.again)
      // After some errors browsers do not reconnect, so this does.
      if (source.readyState === EventSource.CLOSED) {
        clearTimeout(this.retry)
        this.retry = setTimeout(() => this.listen(), RETRY_MS)
      }
    }
    source.addEventListener('call', (event) => {
      this.arrived.push(JSON.parse((event as MessageEvent<string>).data) as Call)
      // In a page that nobody sees there are no frames.
      if (this.arrived.length > KEPT) this.arrived.splice(0, this.arrived.length - KEPT)
      if (this.frame === 0) this.frame = requestAnimationFrame(() => this.flush())
    })
  }

  private readAgain(after: number): void {
    clearTimeout(this.again)
    this.again = setTimeout(() => {
      if (!document.hidden) void this.read()
      this.readAgain(REGULARLY_MS)
    }, after)
  }

  /** Shows what has arrived since the last frame, at once. */
  private flush(): void {
    this.frame = 0
    const { arrived } = this
    this.arrived = []
    this.take(arrived)
  }

  private take(calls: Call[]): void {
    const last = this.list.at(-1)
    // A long call may be older than all that are shown; then it is on a later page.
    const fitting = this.hasOlder && last ? calls.filter((call) => call.id > last.id) : calls
    if (fitting.length === 0) return
    if (this.isHeld) this.held = merged(this.held, fitting).slice(0, KEPT)
    else this.show(fitting)
  }

  private show(calls: Call[]): void {
    const all = merged(this.list, calls)
    this.list = all.slice(0, KEPT)
    if (all.length > KEPT) this.hasOlder = true
  }
}
