// Statistics of calls for the charts, read again while somebody looks at them.

import { api, sentence, type Stats } from '../api/client'

export type Window = '1h' | '24h' | '7d' | '30d'

/** How long each window is, in seconds. A series has 60 points. */
export const WINDOWS: Record<Window, number> = { '1h': 3600, '24h': 86_400, '7d': 604_800, '30d': 2_592_000 }

const HOUR_MS = 3000
const LONGER_MS = 30_000

export class WatchedStats {
  data = $state.raw<Stats | undefined>(undefined)
  error = $state('')

  constructor(private readonly parameters: Record<string, string> & { window: Window }) {}

  /** Reads them until the returned function is called. */
  watch(): () => void {
    const refresh = () => {
      if (!document.hidden) void this.read()
    }
    void this.read()
    const timer = setInterval(refresh, this.parameters.window === '1h' ? HOUR_MS : LONGER_MS)
    document.addEventListener('visibilitychange', refresh)
    return () => {
      clearInterval(timer)
      document.removeEventListener('visibilitychange', refresh)
    }
  }

  async read(): Promise<void> {
    try {
      this.data = await api.stats(this.parameters)
      this.error = ''
    } catch (error) {
      this.error = sentence(error)
    }
  }
}
