// The theme: light or dark as chosen, otherwise as in the system.

export type Theme = 'system' | 'light' | 'dark'

const KEY = 'toolgate-theme'

class Appearance {
  theme = $state<Theme>(stored())

  constructor() {
    this.show()
  }

  choose(theme: Theme): void {
    this.theme = theme
    localStorage.setItem(KEY, theme)
    this.show()
  }

  private show(): void {
    const root = document.documentElement
    if (this.theme === 'system') delete root.dataset.theme
    else root.dataset.theme = this.theme
  }
}

function stored(): Theme {
  const value = localStorage.getItem(KEY)
  return value === 'light' || value === 'dark' ? value : 'system'
}

export const appearance = new Appearance()
