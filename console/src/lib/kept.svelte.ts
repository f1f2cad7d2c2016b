/** A filter that somebody has kept under a name. */
export interface KeptFilter {
  name: string;
  /** What stands in the address behind the question mark. */
  search: string;
}

const KEPT_MAX = 100;

/** Filters that a user has kept. The interface has no place for them: they stay in this browser, apart for each user. */
export class KeptFilters {
  list = $state.raw<readonly KeptFilter[]>([]);
  readonly #key: string;

  constructor(userId: string) {
    this.#key = `filters:${userId}`;
    this.list = this.#stored();
  }

  /** Keeps a filter, in the place of one of the same name. */
  keep(name: string, search: string): void {
    const others = this.list.filter((kept) => kept.name !== name);
    this.#put([...others, { name, search }].slice(-KEPT_MAX).sort((one, other) => one.name.localeCompare(other.name)));
  }

  forget(name: string): void {
    this.#put(this.list.filter((kept) => kept.name !== name));
  }

  #put(list: readonly KeptFilter[]): void {
    this.list = list;
    try {
      localStorage.setItem(this.#key, JSON.stringify(list));
    } catch {
      // Without storage they hold for this visit.
    }
  }

  #stored(): KeptFilter[] {
    try {
      const list = JSON.parse(localStorage.getItem(this.#key) ?? '[]') as Partial<KeptFilter>[];
      return list.flatMap(({ name, search }) =>
        typeof name === 'string' && typeof search === 'string' ? [{ name, search }] : [],
      );
    } catch {
      return [];
    }
  }
}
