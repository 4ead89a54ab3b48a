// Short messages at the edge of the page, also for screen readers: what was done, or what was refused.

export interface Notice {
  id: number
  kind: 'done' | 'refused'
  text: string
}

const SHOWN_MS = { done: 4000, refused: 9000 }

class Notices {
  all = $state<Notice[]>([])
  private next = 1

  tell(kind: Notice['kind'], text: string): void {
    const notice = { id: this.next++, kind, text }
    this.all = [...this.all.slice(-3), notice]
    setTimeout(() => this.dismiss(notice.id), SHOWN_MS[kind])
  }

  dismiss(id: number): void {
    this.all = this.all.filter((notice) => notice.id !== id)
  }
}

export const notices = new Notices()
