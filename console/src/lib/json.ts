import { readExact } from './exact';

export type ReadJson = { isGood: true; value: unknown } | { isGood: false; reason: string };

/** JSON as somebody types it. `null` is no payload. */
export function readJson(text: string): ReadJson {
  try {
    const value = readExact(text);
    return value === null ? { isGood: false, reason: 'null' } : { isGood: true, value };
  } catch (error) {
    return { isGood: false, reason: error instanceof Error ? error.message : String(error) };
  }
}
