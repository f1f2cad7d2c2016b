import type { DeviceSetting } from '../../api/client';
import { writeExact } from '../../lib/exact';

/** A change of a setting. */
export interface Change {
  id: string;
  setting: DeviceSetting;
  at: string;
  /** The value before, where it is known. */
  from: unknown;
  to: unknown;
  /** Who did it: a user or the device. The interface does not tell who has set a setting for the first time. */
  by: string | null;
}

/**
 * The changes of settings, newest first, out of the records in force and those that were replaced. `isWhole` says that no older
 * record is left to be read: only then what no record comes before has begun at the default.
 */
export function changesOf(
  current: readonly DeviceSetting[],
  replaced: readonly DeviceSetting[],
  isWhole: boolean,
): Change[] {
  const before = new Map(replaced.map((record) => [record.changedToId, record]));
  const changes = [...current, ...replaced].flatMap((record) => {
    const last = before.get(record.id);
    // What was never set has no record: its value is the default.
    if (!last && same(record.value, record.defaultValue)) return [];
    const from = last ? last.value : isWhole ? record.defaultValue : undefined;
    return [
      { id: record.id, setting: record, at: record.createdAt, from, to: record.value, by: last?.changedById ?? null },
    ];
  });
  return changes.sort((one, other) => (one.at < other.at ? 1 : one.at > other.at ? -1 : 0));
}

function same(one: unknown, other: unknown): boolean {
  return writeExact(one ?? null) === writeExact(other ?? null);
}
