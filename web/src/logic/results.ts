// The final state of each server of a pasted configuration after an import.

import type { Candidate, ImportOutcome } from '../api/client'

export interface ImportResult {
  name: string
  state: 'added' | 'replaced' | 'failed' | 'skipped' | 'sign-in required'
  /** Why the server failed or was skipped. */
  reason: string
  authorization: ImportOutcome['authorization_required']
}

/** One result for each server of the configuration, also for those that were not sent to the gateway. */
export function results(candidates: Candidate[], outcomes: Record<string, ImportOutcome>): ImportResult[] {
  return candidates.map((candidate) => {
    const outcome = outcomes[candidate.name]
    const kept = candidate.action === 'skip' ? (candidate.reason ?? '') : 'it was not selected'
    return {
      name: candidate.name,
      state: outcome ? stateOf(outcome) : 'skipped',
      reason: outcome ? (outcome.reason ?? '') : kept,
      authorization: outcome?.authorization_required,
    }
  })
}

function stateOf({ outcome }: ImportOutcome): ImportResult['state'] {
  if (outcome === 'added' || outcome === 'failed') return outcome
  if (outcome === 'changed') return 'replaced'
  return outcome === 'authorization_required' ? 'sign-in required' : 'skipped'
}

/** "2 added, 1 failed", in the order of the states. */
export function summary(all: ImportResult[]): string {
  const states: ImportResult['state'][] = ['added', 'replaced', 'sign-in required', 'failed', 'skipped']
  const counted = states.map((state) => [all.filter((one) => one.state === state).length, state] as const)
  return counted
    .filter(([number]) => number > 0)
    .map(([number, state]) => `${number} ${state}`)
    .join(', ')
}
