// The calls made in this tab, by tool. They are kept while the tab is open, so that they can be compared and repeated.

import { api, sentence, type ToolResult } from '../api/client'
import { invoke, type InputEvent, type Progress } from '../api/invocation'
import { readQuestion, type Question } from '../logic/question'

const KEPT = 12

/** A question that the person has not answered yet. */
export interface OpenQuestion {
  /** Tells the questions of a run apart. A later question may have the key of one that was answered. */
  number: number
  call: string
  key: string
  question: Question
}

export class Run {
  readonly startedAt = Date.now()
  progress = $state<Progress[]>([])
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
  ) {}

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
      const onProgress = (progress: Progress) => (this.progress = [...this.progress, progress])
      const onInput = ({ call, requests }: InputEvent) => {
        const asked = Object.entries(requests).map(([key, one]) => {
          return { number: ++this.asked, call, key, question: readQuestion(one) }
        })
        this.questions = [...this.questions, ...asked]
      }
      const invoked = await invoke(this.tool, this.args, { onProgress, onInput }, this.abort.signal)
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

  /** Newest first. */
  begin(tool: string, args: string): Run {
    const earlier = this.of(tool)
    const run = new Run((earlier[0]?.number ?? 0) + 1, tool, args)
    this.byTool = { ...this.byTool, [tool]: [run, ...earlier].slice(0, KEPT) }
    void run.start()
    return run
  }
}

export const runs = new Runs()
