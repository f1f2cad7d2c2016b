const KEY = 'visited';

/** Returns true if somebody has signed in with this browser before. */
export function hasVisited(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false;
  }
}

/** Remembers that somebody has signed in with this browser. */
export function keepVisit(): void {
  try {
    localStorage.setItem(KEY, 'true');
  } catch {
    // Without storage each visit is the first one.
  }
}
