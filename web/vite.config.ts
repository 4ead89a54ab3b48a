// Builds the dashboard into web/dist under stable names, with a compressed copy of the script and the style sheet.

import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { gzipSync } from 'node:zlib'
import { svelte } from '@sveltejs/vite-plugin-svelte'
import tailwindcss from '@tailwindcss/vite'
import { defineConfig, type Plugin } from 'vite'

// The gateway to use with `npm run dev`, as an origin.
const GATEWAY = process.env.GATEWAY ?? 'http://127.0.0.1:8080'
const COMPRESSED = ['assets/app.js', 'assets/app.css']

function compress(): Plugin {
  let folder = ''
  return {
    name: 'compress',
    apply: 'build',
    configResolved: (config) => void (folder = resolve(config.root, config.build.outDir)),
    closeBundle() {
      for (const file of COMPRESSED) {
        const path = join(folder, file)
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }))
      }
    },
  }
}

export default defineConfig({
  plugins: [svelte(), tailwindcss(), compress()],
  build: {
    target: 'es2022',
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      checks: { pluginTimings: false },
      output: {
        entryFileNames: 'assets/app.js',
        assetFileNames: 'assets/app[extname]',
      },
    },
  },
  // The gateway refuses changes from pages of other origins, and this server's own origin is one.
  server: { proxy: { '/api': { target: GATEWAY, changeOrigin: true, headers: { origin: GATEWAY } } } },
})
