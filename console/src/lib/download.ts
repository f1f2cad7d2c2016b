import { authorizedFetch } from '../api/client';
import { arrived, failureOf } from '../api/failure';

/** A first line is sought so far, in bytes. */
const HEAD_BYTES = 256 * 1024;

/**
 * Saves what the server answers as a file. The answer is kept in the browser until it is whole. `headed` makes another first line of
 * that of a table. @throws Failure
 */
export async function download(
  path: string,
  accept: string,
  fileName: string,
  headed?: (line: string) => string,
): Promise<void> {
  const response = await authorizedFetch(path, { headers: { accept } });
  if (!response.ok) throw await failureOf(response);
  const content = await arrived(response.blob());
  saveFile(headed ? await withHead(content, headed) : content, fileName);
}

/** The rest of a large file is not read for it. */
async function withHead(content: Blob, headed: (line: string) => string): Promise<Blob> {
  const bytes = new Uint8Array(await content.slice(0, HEAD_BYTES).arrayBuffer());
  const end = bytes.indexOf('\r'.charCodeAt(0));
  if (end < 0) return content;
  const line = new TextDecoder().decode(bytes.subarray(0, end));
  return new Blob([headed(line), content.slice(end)], { type: content.type });
}

/** Saves what the page itself has made as a file. */
export function saveFile(content: Blob, fileName: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement('a');
  link.href = address;
  link.download = fileName;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
