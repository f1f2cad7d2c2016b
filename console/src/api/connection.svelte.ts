/** Between two looks whether the server is back. */
const LOOK_EVERY_MS = 3_000;
/** A look that takes longer has failed. */
const LOOK_MAX_MS = 8_000;
/** Where a page that gives way to a newly loaded one leaves word that the connection is back. */
const RETURNED = 'returned';
/** So long after the return a failure from the time before it may still be heard of: as long as browsers wait for an answer. */
const HEARD_OF_WITHIN_MS = 60_000;
/** What proxies answer for a server that is not there. */
const AWAY = [502, 504];

/**
 * Whether the server can be reached. One call that fails is no proof: the server is asked once more, and if that fails too, the
 * connection is lost until an answer comes.
 */
class Connection {
  isLost = $state(false);
  #looking: Promise<void> | null = null;
  #listeners = new Set<() => void>();
  #returnedAt = -Infinity;
  /** How often it was lost. */
  #losses = 0;

  constructor() {
    if (typeof addEventListener !== 'function') return;
    addEventListener('offline', () => void this.look());
    addEventListener('online', () => void this.look());
  }

  /** Sends a request, and learns from it how the connection is. Else it is `fetch`. */
  readonly fetch: typeof fetch = async (...input) => {
    const before = this.#losses;
    try {
      const response = await fetch(...input);
      if (AWAY.includes(response.status)) void this.look();
      // What was asked before a loss may be heard of after it, and tells of no return.
      else if (this.#losses === before) this.#isThere();
      return response;
    } catch (error) {
      if (!(error instanceof DOMException)) void this.look();
      throw error;
    }
  };

  /** Calls whoever wants to read again when the connection is back; the function that it gives ends that. */
  onReturn(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Whether it was lost until a moment ago: who hears of it may hear of it late. */
  get hasJustReturned(): boolean {
    return performance.now() - this.#returnedAt < HEARD_OF_WITHIN_MS;
  }

  /** Has the return told by the page that is loaded next, for this one goes with all that it says. */
  tellNextPage(): void {
    sessionStorage.setItem(RETURNED, 'true');
  }

  /** Whether this page was loaded because the connection is back: said once. */
  takeReturn(): boolean {
    const hasReturned = sessionStorage.getItem(RETURNED) !== null;
    sessionStorage.removeItem(RETURNED);
    return hasReturned;
  }

  /** Asks whether the server is there, again and again until it is: then it is done. */
  look(): Promise<void> {
    this.#looking ??= this.#lookOnce();
    return this.#looking;
  }

  #isThere(): void {
    if (!this.isLost) return;
    this.isLost = false;
    this.#returnedAt = performance.now();
    for (const listener of [...this.#listeners]) listener();
  }

  async #lookOnce(): Promise<void> {
    while (!(await answers())) {
      if (!this.isLost) this.#losses += 1;
      this.isLost = true;
      await pause();
    }
    this.#looking = null;
    this.#isThere();
  }
}

async function answers(): Promise<boolean> {
  try {
    const response = await fetch('/v2/about', { cache: 'no-store', signal: AbortSignal.timeout(LOOK_MAX_MS) });
    return !AWAY.includes(response.status);
  } catch {
    return false;
  }
}

/** Waits a moment, or until the network is back. */
function pause(): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, LOOK_EVERY_MS);
    function finish(): void {
      clearTimeout(timer);
      removeEventListener('online', finish);
      resolve();
    }
    addEventListener('online', finish);
  });
}

export const connection = new Connection();
