/** How long before its end a key is told to end soon. */
const SOON_MS = 14 * 86_400_000;

/** Whether a key has ended, ends soon, or neither. */
export function expiry(expiresAt: string | null, now: number): 'over' | 'soon' | 'later' {
  if (expiresAt === null) return 'later';
  const left = Date.parse(expiresAt) - now;
  return left <= 0 ? 'over' : left <= SOON_MS ? 'soon' : 'later';
}

/** A call with a key, to be tried in a terminal. */
export function keyExample(origin: string, key: string): string {
  return `curl -H 'authorization: ${key}' '${origin}/v2/devices?limit=5'`;
}
