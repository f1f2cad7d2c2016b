import type { Schemas } from '../api/client';
import { readExact, writeExact } from './exact';

/** Dashboards as files: written by one console and read by another. */

type Input = Schemas['DashboardInput'];

/** Largest file that is read, in bytes: what the largest dashboard takes, set apart by lines. */
export const BOARD_FILE_BYTES_MAX = 4 * 1024 * 1024;

/** Characters that file systems refuse in a name. */
const REFUSED = /[\\/:*?"<>|\p{Cc}]+/gu;
const NAME_CHARS_MAX = 80;

/** Returns a dashboard as the content of a file. */
export function boardFile({ name, options, configuration }: Required<Input>): string {
  return `${writeExact({ name, options, configuration })}\n`;
}

/** Returns the dashboard that a text holds; null where it holds none. */
export function boardIn(text: string): Input | null {
  let read: unknown;
  try {
    read = readExact(text);
  } catch {
    return null;
  }
  if (!isMembers(read) || !isMembers(read.configuration)) return null;
  const { name, options, configuration } = read;
  return {
    name: typeof name === 'string' ? name.slice(0, NAME_CHARS_MAX) : null,
    options: isMembers(options) ? options : {},
    configuration,
  };
}

/** Returns the name of the file for a dashboard. */
export function boardFileName(name: string): string {
  return `${name.replaceAll(REFUSED, ' ').replaceAll(/\s+/g, ' ').trim().slice(0, NAME_CHARS_MAX) || 'dashboard'}.json`;
}

function isMembers(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
