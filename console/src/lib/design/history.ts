/** What was, what is, and what was taken back. */
export interface History<T> {
  readonly past: readonly T[];
  readonly now: T;
  readonly future: readonly T[];
  /** What the last change was about: the next one about the same joins it, so that a word typed is one step. */
  readonly key: string | null;
}

const STEPS_MAX = 200;

export function begin<T>(now: T): History<T> {
  return { past: [], now, future: [], key: null };
}

export function commit<T>(history: History<T>, now: T, key: string | null = null): History<T> {
  if (now === history.now) return history;
  const joins = key !== null && key === history.key && history.past.length > 0;
  const past = joins ? history.past : [...history.past, history.now].slice(-STEPS_MAX);
  return { past, now, future: [], key };
}

/** The next change is a step of its own. */
export function seal<T>(history: History<T>): History<T> {
  return history.key === null ? history : { ...history, key: null };
}

export function undo<T>(history: History<T>): History<T> {
  const before = history.past.at(-1);
  if (before === undefined) return history;
  return { past: history.past.slice(0, -1), now: before, future: [history.now, ...history.future], key: null };
}

export function redo<T>(history: History<T>): History<T> {
  const [after, ...future] = history.future;
  if (after === undefined) return history;
  return { past: [...history.past, history.now], now: after, future, key: null };
}
