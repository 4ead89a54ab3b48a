// Markdown: what is understood, and that nothing of it becomes HTML or leads anywhere but to web pages.

import { expect, test } from 'vitest'
import { blocks, isMarkdown, plain } from '../src/logic/markdown'

test('blocks and inlines are found', () => {
  const text = [
    '# Title',
    'One **bold** and `code_*x*` and *soft* word,',
    'with a [page](https://example.com/a?b=c).',
    '- first',
    '  goes on',
    '- second',
    '',
    '1. one',
    '2. two',
    '> quoted',
    '```js',
    '# no heading',
    '```',
  ].join('\n')
  expect(blocks(text)).toEqual([
    { kind: 'heading', inlines: [{ kind: 'text', text: 'Title' }] },
    {
      kind: 'paragraph',
      inlines: [
        { kind: 'text', text: 'One ' },
        { kind: 'strong', text: 'bold' },
        { kind: 'text', text: ' and ' },
        { kind: 'code', text: 'code_*x*' },
        { kind: 'text', text: ' and ' },
        { kind: 'emphasis', text: 'soft' },
        { kind: 'text', text: ' word,\nwith a ' },
        { kind: 'link', text: 'page', address: 'https://example.com/a?b=c' },
        { kind: 'text', text: '.' },
      ],
    },
    {
      kind: 'list',
      isOrdered: false,
      items: [[{ kind: 'text', text: 'first\ngoes on' }], [{ kind: 'text', text: 'second' }]],
    },
    { kind: 'list', isOrdered: true, items: [[{ kind: 'text', text: 'one' }], [{ kind: 'text', text: 'two' }]] },
    { kind: 'quote', inlines: [{ kind: 'text', text: 'quoted' }] },
    { kind: 'code', text: '# no heading' },
  ])
})

test('a list shows the text without marks', () => {
  expect(plain('# Use\n\n- **one**\n- `two`\n\nEnd')).toBe('Use one, two End')
})

test('names, HTML and other addresses stay text', () => {
  for (const plain of [
    'get_user_by_id and __init__ and a*b*c',
    '<b>bold</b> <script>alert(1)</script>',
    '[x](javascript:alert(1))',
    '[x](data:text/html,hi)',
    '2 * 3 * 4',
    'plain\ntext',
    '',
  ]) {
    expect(isMarkdown(plain), plain).toBe(false)
    expect(blocks(plain)).toEqual(plain === '' ? [] : [{ kind: 'paragraph', inlines: [{ kind: 'text', text: plain }] }])
  }
})

test('a fence that is not closed, and a very long line, are read to the end', () => {
  expect(blocks('```\ncode')).toEqual([{ kind: 'code', text: 'code' }])
  const begun = performance.now()
  for (const part of ['*a', '[a', '`', '**a ', '_', '- ', '> '])
    expect(blocks(part.repeat(10_000)).length).toBeGreaterThan(0)
  expect(performance.now() - begun).toBeLessThan(5000)
})
