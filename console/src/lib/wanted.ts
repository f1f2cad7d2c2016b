/** Where somebody wanted to go whose page could not be fetched: they get there when the server is back. */

let place = '';

/** Whether an error says that a part of the console could not be fetched. */
export function isUnfetched(error: unknown): boolean {
  return /dynamically imported module/.test(String(error));
}

/** Keeps the address of a page that could not be fetched. */
export function want(pathname: string, search: Record<string, string | number | boolean>): void {
  const query = new URLSearchParams(Object.entries(search).map(([name, value]) => [name, String(value)])).toString();
  place = query ? `${pathname}?${query}` : pathname;
}

/** Forgets it: another page was opened. */
export function arrived(): void {
  place = '';
}

/** The address; empty when every page that was wanted was opened. */
export function wantedPlace(): string {
  return place;
}
