import { authorizedFetch } from '../api/client';
import { failureOf } from '../api/failure';

/** Saves what the server answers as a file. The answer is kept in the browser until it is whole. @throws Failure */
export async function download(path: string, accept: string, fileName: string): Promise<void> {
  const response = await authorizedFetch(path, { headers: { accept } });
  if (!response.ok) throw await failureOf(response);
  saveFile(await response.blob(), fileName);
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
