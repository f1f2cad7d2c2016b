import { type Failure, asFailure, isAbort } from '../api/failure';

/** Something that was refused, and why. */
export interface Refusal<T> {
  item: T;
  failure: Failure;
}

/** Does something with some items in one call: gives those that were refused, or throws what befell all of them. */
export type Act<T> = (items: readonly T[], signal: AbortSignal) => Promise<readonly Refusal<T>[]>;

/** Calls that are under way side by side: the server stays free for others. */
const SIDE_BY_SIDE = 4;
/** How often a call that may pass is made again, and after how long. */
const AGAIN_AFTER_MS = [1_000, 2_000, 4_000];
const TOO_MANY_WAIT_S = 10;

/** Work on many things, item by item or in handfuls: how far it is, what was refused, and a way to go on. */
export class BulkRun<T> {
  total = $state(0);
  done = $state(0);
  refusals = $state.raw<readonly Refusal<T>[]>([]);
  state = $state<'idle' | 'running' | 'stopped' | 'finished'>('idle');
  /** Until when the server wants to be left alone; milliseconds. */
  waitsUntil = $state<number | null>(null);
  /** Why it stopped by itself. */
  failure = $state.raw<Failure>();
  #waiting: T[] = [];
  #stop = new AbortController();
  #pause: Promise<void> | null = null;

  /**
   * @param act what is done with a handful
   * @param handful how many go into one call
   * @param sleep waits, until it is over or the signal says stop
   */
  constructor(
    private readonly act: Act<T>,
    private readonly handful = 1,
    private readonly sleep: (milliseconds: number, signal: AbortSignal) => Promise<void> = rest,
  ) {}

  /** What has gone well. */
  get succeeded(): number {
    return this.done - this.refusals.length;
  }

  run(items: readonly T[]): Promise<void> {
    this.total = items.length;
    this.done = 0;
    this.refusals = [];
    this.#waiting = [...items];
    return this.resume();
  }

  /** Goes on with what is left. */
  async resume(): Promise<void> {
    if (this.state === 'running') return;
    this.state = 'running';
    this.failure = undefined;
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    await Promise.all(Array.from({ length: SIDE_BY_SIDE }, () => this.#work(signal)));
    this.state = this.#waiting.length > 0 ? 'stopped' : 'finished';
  }

  /** Does once more what was refused. */
  retry(): Promise<void> {
    this.#waiting = this.refusals.map(({ item }) => item);
    this.done -= this.#waiting.length;
    this.refusals = [];
    return this.resume();
  }

  /** What is under way ends; the rest waits for `resume`. */
  stop(): void {
    this.#stop.abort();
  }

  async #work(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.#waiting.length > 0) {
      if (this.#pause) {
        await this.#pause;
        continue;
      }
      const items = this.#waiting.splice(0, this.handful);
      const isDone = await this.#attempt(items, signal);
      if (!isDone) this.#waiting.unshift(...items);
    }
  }

  /** Whether something came of it, good or bad; else it waits as before. */
  async #attempt(items: readonly T[], signal: AbortSignal): Promise<boolean> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        this.#count(items, await this.act(items, signal));
        return true;
      } catch (error) {
        if (signal.aborted || isAbort(error)) return false;
        const failure = asFailure(error);
        if (failure.status === 429) {
          await this.#leaveAlone(failure.retryAfter ?? TOO_MANY_WAIT_S, signal);
          return false;
        }
        const again = failure.mayPass ? AGAIN_AFTER_MS[attempt] : undefined;
        if (again !== undefined) {
          await this.sleep(again, signal);
          continue;
        }
        // Without a connection or a session nothing else would go well either.
        if (failure.status === 0 || failure.status === 401) return this.#giveUp(failure);
        this.#count(
          items,
          items.map((item) => ({ item, failure })),
        );
        return true;
      }
    }
  }

  #giveUp(failure: Failure): false {
    this.failure = failure;
    this.stop();
    return false;
  }

  #count(items: readonly T[], refused: readonly Refusal<T>[]): void {
    this.done += items.length;
    if (refused.length > 0) this.refusals = [...this.refusals, ...refused];
  }

  /** All wait, once for all that were refused together. */
  async #leaveAlone(seconds: number, signal: AbortSignal): Promise<void> {
    this.waitsUntil = Date.now() + seconds * 1_000;
    this.#pause ??= this.sleep(seconds * 1_000, signal).then(() => {
      this.#pause = null;
      this.waitsUntil = null;
    });
    await this.#pause;
  }
}

/** Waits for so long, or until the signal says stop. */
function rest(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, milliseconds);
    function finish(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', finish);
      resolve();
    }
    signal.addEventListener('abort', finish);
  });
}
