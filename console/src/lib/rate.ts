/** What was counted, second by second. */
export interface Counted {
  /** Oldest first. */
  seconds: readonly number[];
  total: number;
  /** Whether it has been counted for as long as it ever is. */
  isFull: boolean;
}

export function counted(seconds: readonly number[], most: number): Counted {
  return { seconds, total: seconds.reduce((sum, count) => sum + count, 0), isFull: seconds.length >= most };
}

/** Bars of the last `most` seconds, the newest at the right, as heights of 0 to 1. */
export function bars({ seconds }: Counted, most: number): number[] {
  const highest = Math.max(1, ...seconds);
  const empty = new Array<number>(Math.max(most - seconds.length, 0)).fill(0);
  return [...empty, ...seconds.map((count) => count / highest)];
}
