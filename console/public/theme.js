// Before the first paint: the theme that was chosen, so that a dark room stays dark. `src/lib/theme.svelte.ts` writes it.
try {
  var chosen = localStorage.getItem('theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is switched off: the system's theme it is.
}
