// The rules for the dashboard and for the scripts under tests/: what ESLint, typescript-eslint and eslint-plugin-svelte
// recommend. `npm run lint` starts it in the root of the repository, so patterns begin with `**`.

import js from '@eslint/js'
import svelte from 'eslint-plugin-svelte'
import { defineConfig, globalIgnores } from 'eslint/config'
import globals from 'globals'
import ts from 'typescript-eslint'
import svelteConfig from './svelte.config.js'

export default defineConfig(
  globalIgnores(['**/dist/', '**/src/api/schema.ts'], 'generated'),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  js.configs.recommended,
  ts.configs.recommended,
  svelte.configs.recommended,
  { languageOptions: { globals: globals.node } },
  // The scripts that drive a browser pass functions to the page.
  { files: ['**/src/**', '**/browser/**', '**/sign-in/**'], languageOptions: { globals: globals.browser } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, extraFileExtensions: ['.svelte'], svelteConfig } },
  },
)
