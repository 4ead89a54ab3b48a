// The calls made in this tab, by tool. They are kept while the tab is open, also over a reload, so that they can be compared
// and repeated.

import { api, sentence, type ToolResult } from '../api/client'
import { invoke, type InputEvent, type Notification, type Progress } from '../api/invocation'
import { readQuestion, type Question } from '../logic/question'

const KEPT = 12
/** Begins the keys of the session storage, which ends with the tab: results may be confidential. */
const KEY = 'toolgate-runs '
/** Longer results are not kept over a reload. */
const LONGEST = 200_000

/** More notifications of a run are only counted. */
const MOST_NOTIFICATIONS = 200

/** A notification, and how many milliseconds after the start of the run it came. */
export interface Arrived {
  number: number
  after: number
  notification: Notification
}

/** A question that the person has not answered yet. */
export interface OpenQuestion {
  /** Tells the questions of a run apart. A later question may have the key of one that was answered. */
  number: number
  call: string
  key: string
  question: Question
}

/** A call that has ended, as it is kept over a reload. */
interface Ended {
  number: number
  args: string
  startedAt: number
  elapsed: number
  raw: string
  error: string
  isCancelled: boolean
}

export class Run {
  progress = $state<Progress[]>([])
  /** Progress, log messages and other notifications, in the order in which they came; the latest if there are many. */
  notifications = $state.raw<Arrived[]>([])
  /** How many notifications came. */
  notified = $state(0)
  questions = $state.raw<OpenQuestion[]>([])
  result = $state.raw<ToolResult | undefined>(undefined)
  raw = $state('')
  error = $state('')
  isRunning = $state(true)
  isCancelled = $state(false)
  elapsed = $state(0)
  /** How many questions the tool asked so far. */
  private asked = 0
  private readonly abort = new AbortController()

  constructor(
    readonly number: number,
    readonly tool: string,
    /** The arguments as sent. */
    readonly args: string,
    readonly startedAt = Date.now(),
  ) {}

  static restore(tool: string, ended: Ended): Run {
    const run = new Run(ended.number, tool, ended.args, ended.startedAt)
    run.isRunning = false
    run.elapsed = ended.elapsed
    run.error = ended.error
    run.isCancelled = ended.isCancelled
    run.raw = ended.raw
    if (ended.raw !== '') run.result = JSON.parse(ended.raw) as ToolResult
    return run
  }

  ended(): Ended {
    const { number, args, startedAt, elapsed, raw, error, isCancelled } = this
    return { number, args, startedAt, elapsed, raw, error, isCancelled }
  }

  get outcome(): 'running' | 'ok' | 'tool error' | 'failed' | 'cancelled' {
    if (this.isRunning) return 'running'
    if (this.isCancelled) return 'cancelled'
    if (this.error !== '') return 'failed'
    return this.result?.isError ? 'tool error' : 'ok'
  }

  async start(): Promise<void> {
    const begun = performance.now()
    const clock = setInterval(() => (this.elapsed = performance.now() - begun), 100)
    try {
      const onNotification = (notification: Notification) => {
        const arrived = { number: ++this.notified, after: performance.now() - begun, notification }
        this.notifications = [...this.notifications, arrived].slice(-MOST_NOTIFICATIONS)
      }
      const onProgress = (progress: Progress) => {
        this.progress = [...this.progress, progress]
        onNotification({ method: 'notifications/progress', params: progress })
      }
      const onInput = ({ call, requests }: InputEvent) => {
        const asked = Object.entries(requests).map(([key, one]) => {
          return { number: ++this.asked, call, key, question: readQuestion(one) }
        })
        this.questions = [...this.questions, ...asked]
      }
      const invoked = await invoke(this.tool, this.args, { onProgress, onNotification, onInput }, this.abort.signal)
      this.raw = invoked.raw
      this.result = invoked.result
    } catch (error) {
      if (this.abort.signal.aborted) this.isCancelled = true
      else this.error = sentence(error)
    } finally {
      clearInterval(clock)
      this.elapsed = performance.now() - begun
      this.isRunning = false
      this.questions = []
    }
  }

  /** Answers a question, which then disappears. */
  async answer(open: OpenQuestion, answer: unknown): Promise<void> {
    await api.answer(open.call, open.key, answer)
    this.questions = this.questions.filter((one) => one !== open)
  }

  cancel(): void {
    this.abort.abort()
  }
}

class Runs {
  private byTool = $state<Record<string, Run[]>>({})
  /** The form input for each tool. */
  readonly drafts = new Map<string, { text: string; value: unknown; mode: 'form' | 'json' }>()

  of(tool: string): Run[] {
    return this.byTool[tool] ?? []
  }

  constructor() {
    for (const key of Object.keys(sessionStorage).filter((key) => key.startsWith(KEY))) {
      const tool = key.slice(KEY.length)
      try {
        const kept = JSON.parse(sessionStorage.getItem(key) ?? '[]') as Ended[]
        this.byTool[tool] = kept.map((ended) => Run.restore(tool, ended))
      } catch {
        // Written by another version of the dashboard.
        sessionStorage.removeItem(key)
      }
    }
  }

  private keep(tool: string): void {
    const ended = this.of(tool).filter((run) => !run.isRunning && run.raw.length <= LONGEST)
    try {
      sessionStorage.setItem(KEY + tool, JSON.stringify(ended.map((run) => run.ended())))
    } catch {
      // The storage is full; the runs are still shown until the page is reloaded.
    }
  }

  /** Newest first. */
  begin(tool: string, args: string): Run {
    const earlier = this.of(tool)
    const run = new Run((earlier[0]?.number ?? 0) + 1, tool, args)
    this.byTool = { ...this.byTool, [tool]: [run, ...earlier].slice(0, KEPT) }
    void run.start().then(() => this.keep(tool))
    return run
  }
}

export const runs = new Runs()
