/** Pictures that a dashboard keeps within itself. */

/** The longer side of a picture that is kept, in pixels. */
const SIDE_MAX = 1_280;
/** How large the text of one may be: several have room in a dashboard. */
export const PICTURE_CHARACTERS_MAX = 160_000;
/** From the best to what is still good enough. */
const QUALITIES = [0.85, 0.7, 0.5, 0.3];
const TYPE = 'image/jpeg';
const HEAD = `data:${TYPE};base64,`;

/** Returns a picture small enough to be kept, as Base64; null where it cannot be read or made so small. */
export async function pictureIn(file: Blob): Promise<string | null> {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  const share = Math.min(1, SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(bitmap.width * share));
  canvas.height = Math.max(1, Math.round(bitmap.height * share));
  const context = canvas.getContext('2d');
  if (!context) return null;
  // What shows through stands on paper.
  context.fillStyle = 'white';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  for (const quality of QUALITIES) {
    const address = canvas.toDataURL(TYPE, quality);
    if (address.startsWith(HEAD) && address.length <= PICTURE_CHARACTERS_MAX) return address.slice(HEAD.length);
  }
  return null;
}

/** Returns what is kept as a picture that a page can show; null where it is none. */
export function pictureOf(kept: string): Blob | null {
  try {
    return new Blob([Uint8Array.from(atob(kept), (sign) => sign.charCodeAt(0))], { type: TYPE });
  } catch {
    return null;
  }
}
