const KEY = 'visit';

/** What a browser knows of the sessions in it: none was ever, one may go on, or the last one has ended. */
type Visit = 'none' | 'open' | 'ended';

/** Returns what is known; null where nothing can be kept, so that nothing is known. */
function visit(): Visit | null {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === 'open' || kept === 'ended' ? kept : 'none';
  } catch {
    return null;
  }
}

/** Returns true if somebody has signed in with this browser before. */
export function hasVisited(): boolean {
  const known = visit();
  return known === 'open' || known === 'ended';
}

/** Returns false if no session can go on: asking the server would bring a refusal. */
export function mayGoOn(): boolean {
  const known = visit();
  return known === null || known === 'open';
}

/** Remembers that a session has begun, or that it has ended. */
export function keepVisit(now: Exclude<Visit, 'none'>): void {
  try {
    localStorage.setItem(KEY, now);
  } catch {
    // Without storage the server is asked each time.
  }
}
