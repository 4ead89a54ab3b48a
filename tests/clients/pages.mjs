// Runs what the pages show: each code block with a gateway of its own, and checks the commands in the text. CONTRIBUTING.md,
// "Code blocks in pages", describes what a block says after its language. A block that says nothing that is known here fails.
// Usage: pages.mjs GATEWAY, with HTTP and SSE set to the addresses of servers, and TOOLGATE and XTASK to the programs.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { Home } from './home.mjs'

const root = join(import.meta.dirname, '../..')
// The changelog tells what was: its commands may be gone.
const PAGES = [
  ...readdirSync(root).filter((name) => name.endsWith('.md') && name !== 'CHANGELOG.md'),
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
  'tests/conformance/README.md',
]

/** What the pages name, and what stands for it when a block is run. */
function replaced(text, home) {
  return text
    .replaceAll('http://localhost:8000/mcp', process.env.HTTP)
    .replaceAll('http://localhost:8000/sse', process.env.SSE)
    .replaceAll('https://api.githubcopilot.com/mcp', process.env.HTTP)
    .replaceAll('https://gate.example.com', home.url)
    .replaceAll('8080', new URL(home.url).port)
    .replaceAll('/home/anna', home.folder)
}

/** Reads the code blocks of a page: the language, the words after it, the text, and the place. */
function blocksOf(page) {
  const blocks = []
  let open
  for (const [index, line] of readFileSync(join(root, page), 'utf8').split('\n').entries()) {
    const fence = /^ *```(.*)$/.exec(line)
    if (fence && open) {
      blocks.push({ ...open, text: open.lines.join('\n') })
      open = undefined
    } else if (fence) {
      assert.ok(
        !fence[1].includes('`'),
        `${page}:${index + 1}: Markdown allows no backtick after the opening of a block`,
      )
      const [language, ...words] = fence[1].trim().split(' ')
      open = { place: `${page}:${index + 1}`, language, words, lines: [] }
    } else open?.lines.push(line)
  }
  assert.ok(!open, `${open?.place}: the block does not end`)
  return blocks
}

/** Splits the words of a block into how it is checked and what its gateway needs. */
function planOf({ words }) {
  const servers = words.includes('with') ? words.slice(words.indexOf('with') + 1) : []
  const rest = words.includes('with') ? words.slice(0, words.indexOf('with')) : words
  return { servers, enterprise: rest.includes('enterprise'), how: rest.filter((word) => word !== 'enterprise') }
}

/** How a block is checked, by its language and the first word after it. Each throws if it fails. */
const CHECKS = {
  sh: (home, { text }) => runAll(home, text),
  console: (home, { text }) => compare(home, text),
  'json client': async (home, { text }) => {
    const entry = Object.values(Object.values(JSON.parse(text))[0])[0]
    assert.ok((await home.toolsOf(entry)).includes('everything__echo'), 'a client does not see the tools')
  },
  'json PATCH': async (home, { text, how }) => {
    const response = await fetch(home.url + how[1], { method: 'PATCH', body: text })
    assert.ok(response.ok, await response.text())
  },
  'yaml settings': async (home, { text }) => {
    home.write('.toolgate.conf', text)
    delete home.env.TOOLGATE_REGISTRY
    const printed = await runAll(home, 'toolgate status')
    assert.ok(printed.join('\n').includes(home.url), 'the settings are not used')
  },
  // The commands of the same page use the file, see `prepare`.
  'yaml file': () => {},
}

async function runAll(home, text) {
  const { code, printed } = await home.run(text)
  assert.equal(code, 0, `ended with ${code}:\n${printed.join('\n')}`)
  return printed
}

/** Runs the lines that begin with `$ `, and compares what they print with what is shown. */
async function compare(home, text) {
  for (const part of text.split(/^\$ /m).slice(1)) {
    const [command, ...expected] = part.trimEnd().split('\n')
    const printed = command === 'toolgate start' ? home.greeting.split('\n') : await runAll(home, command)
    let at = 0
    for (const [index, line] of expected.entries()) {
      if (line === '...') continue
      const after = expected[index - 1] === '...'
      const fits = (shown) => (line.endsWith('...') ? shown.startsWith(line.slice(0, -3)) : shown === line)
      const found = after ? printed.findIndex((shown, place) => place >= at && fits(shown)) : at
      assert.ok(
        found >= 0 && fits(printed[found] ?? ''),
        `\`${command}\` does not print ${JSON.stringify(line)}:\n${printed.join('\n')}`,
      )
      at = found + 1
    }
  }
}

/** Writes the files that a block uses: those that other blocks of its page show, and those that the page only names. */
function prepare(home, { text: commands }, blocks) {
  for (const { text, how, place } of blocks.filter(({ how }) => how[0] === 'file')) {
    const name = how[1]
    const isUsed = blocks.some((block) => block.language === 'sh' && block.text.includes(name))
    assert.ok(isUsed, `${place}: no command of the page uses ${name}`)
    home.write(name, replaced(text, home))
  }
  home.write('message.json', '{"message": "hello"}')
  mkdirSync(join(home.folder, 'target/release'), { recursive: true })
  symlinkSync(process.env.TOOLGATE, join(home.folder, 'target/release/toolgate'))
  if (commands.includes('.tar.gz')) {
    execFileSync(process.env.XTASK, ['release', '--toolgate', process.env.TOOLGATE, '--into', home.folder], {
      stdio: 'pipe',
    })
  }
}

async function check(block, blocks) {
  const home = await Home.open(block)
  try {
    prepare(home, block, blocks)
    await CHECKS[block.kind](home, { ...block, text: replaced(block.text, home) })
  } finally {
    home.close()
  }
}

/** The commands and client configurations in the text of a page, outside of its blocks. */
function spansOf(page) {
  const text = readFileSync(join(root, page), 'utf8').replace(/^ *```[^]*?^ *```/gm, '')
  const spans = [...text.matchAll(/`([^`]+)`/g)].map(([, span]) => span.replaceAll('\n', ' ').replaceAll('\\|', '|'))
  return [...new Set(spans)].map((span) => ({ span, page }))
}

const problems = []
const attempt = async (place, work) => {
  try {
    await work()
  } catch (error) {
    problems.push(`${place}: ${error.message}`)
  }
}

let [checked, excused] = [0, 0]
for (const page of PAGES) {
  const blocks = blocksOf(page).map((block) => ({ ...block, ...planOf(block) }))
  for (const block of blocks) {
    const kind = [`${block.language} ${block.how[0]}`, block.language].find((kind) => CHECKS[kind])
    if (/^not run: .+/.test(block.words.join(' '))) excused++
    else if (!kind)
      problems.push(`${block.place}: there is no check for a block "${[block.language, ...block.words].join(' ')}"`)
    else await attempt(block.place, () => check({ ...block, kind }, blocks).then(() => checked++))
  }
}
console.log(`  ${checked} blocks of pages work, ${excused} are not run`)

const spans = PAGES.flatMap(spansOf)
const home = await Home.open({ servers: ['everything'] })
const commands = spans.filter(({ span }) => /^toolgate [a-z-]/.test(span))
const entries = spans.filter(({ span }) => /^\{"(mcpServers|servers)": \{"toolgate"/.test(span))
for (const { span, page } of commands) await attempt(page, () => home.parse(span))
for (const { span, page } of entries) {
  await attempt(page, () => CHECKS['json client'](home, { text: replaced(span, home) }))
}
for (const { span, page } of spans.filter(({ span }) => span.startsWith('claude mcp add'))) {
  await attempt(page, async () => {
    const [, url] = /^claude mcp add --transport http toolgate (\S+)$/.exec(replaced(span, home))
    assert.ok((await home.toolsOf({ url })).includes('everything__echo'))
  })
}
console.log(`  ${commands.length} commands and ${entries.length} configurations in their text are valid`)

assert.equal(problems.length, 0, `\n${problems.join('\n')}`)
process.exit(0)
