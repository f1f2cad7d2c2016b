/** Designs as files: written by one console and read by another. */

import { parseJson } from './json-text';
import { type Design, readDesign, writeDesign } from './model';

/** Largest file that is read, in bytes: several times what the largest design takes. */
export const FILE_BYTES_MAX = 8 * 1024 * 1024;

/** Characters that file systems refuse in a name. */
const REFUSED = /[\\/:*?"<>|\p{Cc}]+/gu;
const NAME_CHARS_MAX = 80;

/** Returns the design that a text holds; null where it holds none. */
export function designIn(text: string): Design | null {
  const parsed = parseJson(text);
  const read = parsed.isGood ? readDesign(parsed.root.value) : null;
  return read?.isGood ? read.design : null;
}

/** Returns a design as the content of a file. */
export function designFile(design: Design): Blob {
  return new Blob([writeDesign(design), '\n'], { type: 'application/json' });
}

/** Returns the name of the file for the design of a project. */
export function designFileName(project: string): string {
  const name = project.replaceAll(REFUSED, ' ').trim().slice(0, NAME_CHARS_MAX);
  return `${name || 'design'}.json`;
}
