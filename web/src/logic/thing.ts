// A resource or a resource template: the page shows both in one list.

export interface Thing {
  server: string
  /** A URI, or a template for URIs. */
  uri: string
  name: string
  description: string
  media: string
  status: string
  isTemplate: boolean
}
