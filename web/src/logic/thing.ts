// A resource or a template for resources: on the page they are one list.

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
