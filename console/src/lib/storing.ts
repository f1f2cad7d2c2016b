/** A project that devices have, and what it stores. */
export interface Storing {
  projectUuid: string;
  /** Null: whatever comes. */
  elements: string[] | null;
}

/** The projects that may store an element; undefined where none does, so that nothing is left out. */
export function projectsWith(storing: readonly Storing[], elementName: string): string[] | undefined {
  const found = storing.filter(({ elements }) => elements?.includes(elementName) ?? true);
  return found.length > 0 ? found.map(({ projectUuid }) => projectUuid) : undefined;
}
