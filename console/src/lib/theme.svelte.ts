export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';

/** Light or dark: as the system says, or as the user chose. `public/theme.js` reads the choice before the first paint. */
class ThemeChoice {
  current = $state<Theme>(stored());

  choose(theme: Theme): void {
    this.current = theme;
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      if (theme === 'system') localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch {
      // Without storage it holds for this visit.
    }
  }
}

function stored(): Theme {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === 'light' || theme === 'dark' ? theme : 'system';
  } catch {
    return 'system';
  }
}

export const theme = new ThemeChoice();
