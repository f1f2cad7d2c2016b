import { type Design, readDesign } from './model';

/** Work that is not saved yet, as it is kept in the browser, for its user and project. */
export interface Draft {
  design: Design;
  /** What it was made of, and the tag of that. */
  base: Design | null;
  etag: string | null;
  /** What was to be said of the next version. */
  note: string;
  /** JSON that was being typed and could not be shown yet. */
  text: string | null;
  /** RFC 3339. */
  at: string;
}

function keyFor(user: string, project: string): string {
  return `design:${user}:${project}`;
}

/** Keeps a draft. False where the browser has no room for it. */
export function keepDraft(user: string, project: string, draft: Draft, storage: Storage = localStorage): boolean {
  const key = keyFor(user, project);
  // Without what it was made of, when both do not fit: the work itself comes first.
  for (const kept of [draft, { ...draft, base: null }]) {
    try {
      storage.setItem(key, JSON.stringify(kept));
      return true;
    } catch {
      // It did not fit.
    }
  }
  return false;
}

export function readDraft(user: string, project: string, storage: Storage = localStorage): Draft | null {
  try {
    const kept = JSON.parse(storage.getItem(keyFor(user, project)) ?? 'null') as Partial<Draft> | null;
    const design = readDesign(kept?.design);
    if (!kept || !design.isGood) return null;
    const base = readDesign(kept.base);
    const etag = typeof kept.etag === 'string' ? kept.etag : null;
    const text = typeof kept.text === 'string' ? kept.text : null;
    const note = typeof kept.note === 'string' ? kept.note : '';
    return {
      design: design.design,
      base: base.isGood ? base.design : null,
      etag,
      note,
      text,
      at: String(kept.at ?? ''),
    };
  } catch {
    return null;
  }
}

export function dropDraft(user: string, project: string, storage: Storage = localStorage): void {
  try {
    storage.removeItem(keyFor(user, project));
  } catch {
    // Nothing was kept.
  }
}
