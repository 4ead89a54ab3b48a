// Runs an installed package in this process, as npx does. Usage: npx.mjs PACKAGE ARGUMENTS...

import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const [name, ...words] = process.argv.slice(2)
const folder = join(import.meta.dirname, 'node_modules', name)
const { bin } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
const file = join(folder, typeof bin === 'string' ? bin : Object.values(bin)[0])
process.argv = [process.execPath, file, ...words]
await import(file)
