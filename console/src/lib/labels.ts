import { ExactNumber, isNumber, readExact, writeExact } from './exact';

/** Labels of devices: how a value is typed and shown, and what a change of one sends. */

/** The value that somebody has typed: JSON where it is some, a text otherwise. A number in quotes is a text. */
export function labelValue(typed: string): unknown {
  const text = typed.trim();
  try {
    const value = readExact(text);
    return value === null ? text : value;
  } catch {
    return text;
  }
}

/** A value as it is typed, so that `labelValue` gives it back. */
export function labelText(value: unknown): string {
  if (typeof value !== 'string') return writeExact(value);
  return labelValue(value) === value ? value : writeExact(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

/** A merge patch that makes one value of another: members that are left out go. */
export function patchOf(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return after;
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(after, name));
  return Object.fromEntries([
    ...gone.map((name) => [name, null] as const),
    ...Object.entries(after).flatMap(([name, value]) =>
      writeExact(before[name]) === writeExact(value) ? [] : [[name, patchOf(before[name], value)] as const],
    ),
  ]);
}

/** Values of labels that are worth being offered: those that are not as different as measurements, the most frequent first. */
export function offeredValues(values: readonly unknown[], max: number): string[] {
  const counts = new Map<string, number>();
  for (const value of values) {
    if (typeof value !== 'string' && typeof value !== 'boolean' && !isNumber(value)) continue;
    const text = labelText(value);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const byCount = [...counts].sort(([one, a], [other, b]) => b - a || one.localeCompare(other));
  return byCount.slice(0, max).map(([text]) => text);
}
