// Starts the identity provider of a gateway. It is at `localhost` while the gateway is at `127.0.0.1`, so that both are
// different sites for the browser.

import { fileURLToPath } from 'node:url'
import { Program } from './programs.mjs'

const PROGRAM = fileURLToPath(new URL('provider_program.mjs', import.meta.url))
const SECRET = 'a-secret-of-the-identity-provider'

/** The settings of a gateway whose people sign in at a provider, which this starts. */
export function withProvider(test) {
  return async (gateway) => {
    const program = new Program(test, process.execPath, [PROGRAM, `${gateway}/login/callback`, SECRET])
    return {
      OIDC_ISSUER: await program.until(/listens on (\S+)/),
      OIDC_CLIENT_ID: 'toolgate',
      OIDC_CLIENT_SECRET: SECRET,
      OIDC_ALLOWED_GROUPS: 'engineering',
    }
  }
}
