// The person with a browser: opens the page of an authorization server, which grants at once, and returns the
// parameters of the redirect.

/** The parameters of the redirect: `code`, `state` and `iss`, or `error`. */
export async function authorize(url) {
  const response = await fetch(url, { redirect: 'manual' })
  const location = response.headers.get('location')
  if (!location) throw new Error(`the authorization server answered with ${response.status} and no way back`)
  return Object.fromEntries(new URL(location, url).searchParams)
}
