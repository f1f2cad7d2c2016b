/** Where the list of devices was left: whoever comes back from a device finds it so. */

interface ListPlace {
  /** The address's search, which says which list it is. */
  search: string;
  /** How far it was scrolled, in pixels. */
  top: number;
}

let left: ListPlace = { search: '', top: 0 };

/** The address of the list as it was left. */
export function devicesAddress(): string {
  return `/devices${left.search}`;
}

/** How far the list of this search was scrolled; another list begins at its top. */
export function topOf(search: string): number {
  return normal(left.search) === normal(search) ? left.top : 0;
}

/** One search may be written in several ways: with brackets as they are, or by their numbers. */
function normal(search: string): string {
  return new URLSearchParams(search).toString();
}

export function leaveAt(search: string, top: number): void {
  left = { search, top };
}
