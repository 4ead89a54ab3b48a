// What a person can do about each cause that hides something from agents.

import { expect, test } from 'vitest'
import { remedyFor } from '../src/logic/visibility'

test('each cause leads to what changes or explains it', () => {
  const tool = { name: 's__a', server: 's', endpoint: { group: 'g' }, isServerPage: false }
  expect(remedyFor('tool_disabled', tool)).toMatchObject({ kind: 'enable', noun: 'tools', name: 's__a' })
  expect(remedyFor('server_disabled', tool)).toMatchObject({ kind: 'enable', noun: 'servers', name: 's' })
  expect(remedyFor('not_in_group', tool)).toMatchObject({ page: 'groups', rest: ['g', 'edit'] })
  expect(remedyFor('excluded_from_group', tool)).toMatchObject({ page: 'groups', rest: ['g', 'edit'] })
  expect(remedyFor('server_failed', tool)).toMatchObject({ page: 'servers', rest: ['s'] })
  expect(remedyFor('server_failed', { ...tool, isServerPage: true })).toBeUndefined()
  expect(remedyFor('refused_name', tool)).toBeUndefined()
})
