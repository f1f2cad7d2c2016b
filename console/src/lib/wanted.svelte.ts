/** Where somebody wants to go: they get there when the server is back, should the page not be fetched. */

let place = $state('');

/** Whether an error says that a part of the console could not be fetched. */
export function isUnfetched(error: unknown): boolean {
  return /dynamically imported module/.test(String(error));
}

/** Keeps the address of a page that is to be opened. */
export function want(pathname: string, search: Record<string, string | number | boolean>): void {
  const query = new URLSearchParams(Object.entries(search).map(([name, value]) => [name, String(value)])).toString();
  place = query ? `${pathname}?${query}` : pathname;
}

/** Forgets it: a page was opened. */
export function arrived(): void {
  place = '';
}

/** The address; empty when every page that was wanted was opened. */
export function wantedPlace(): string {
  return place;
}
