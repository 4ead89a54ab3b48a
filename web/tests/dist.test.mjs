// The committed build: the compressed files have the same content, and the page has no inline scripts or styles.

import { readFileSync } from 'node:fs'
import { gunzipSync } from 'node:zlib'
import { expect, test } from 'vitest'

const read = (name) => readFileSync(new URL(`../dist/${name}`, import.meta.url))

test('the compressed files are the others', () => {
  for (const name of ['assets/app.js', 'assets/app.css']) {
    expect(gunzipSync(read(`${name}.gz`)).equals(read(name)), name).toBe(true)
  }
})

test('the page has no inline script or style', () => {
  const page = read('index.html').toString()
  expect(page).not.toMatch(/<script(?![^>]*\ssrc=)/)
  expect(page).not.toMatch(/<style|\sstyle=|\son\w+=/)
})
