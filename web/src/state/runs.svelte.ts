// The calls made in this tab, by tool. They are kept while the tab is open, so that they can be compared and repeated.

import { sentence, type ToolResult } from '../api/client'
import { invoke, type Progress } from '../api/invocation'

const KEPT = 12

export class Run {
  readonly startedAt = Date.now()
  progress = $state<Progress[]>([])
  result = $state.raw<ToolResult | undefined>(undefined)
  raw = $state('')
  error = $state('')
  isRunning = $state(true)
  isCancelled = $state(false)
  elapsed = $state(0)
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
      const invoked = await invoke(this.tool, this.args, onProgress, this.abort.signal)
      this.raw = invoked.raw
      this.result = invoked.result
    } catch (error) {
      if (this.abort.signal.aborted) this.isCancelled = true
      else this.error = sentence(error)
    } finally {
      clearInterval(clock)
      this.elapsed = performance.now() - begun
      this.isRunning = false
    }
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
