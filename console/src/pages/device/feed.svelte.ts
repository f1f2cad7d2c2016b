import { type StoredEvent, api, done } from '../../api/client';
import { type Failure, asFailure } from '../../api/failure';
import { type StreamState, listen } from '../../api/stream';
import { merge } from './merge';

/** Events that are read of history at once. */
const HISTORY = 100;
/** Events that are kept; beyond, the oldest go, and can be read again. */
const KEPT_MAX = 2_000;
/** What comes within this time is shown together: a device may send a hundred a second. */
const SHOWN_EVERY_MS = 200;

/** So long history waits for the stream, behind which it need not be read again. */
const PATIENCE_MS = 300;

/** A device's events, newest first: history, and then what comes, each once. */
export class Feed {
  events = $state.raw<readonly StoredEvent[]>([]);
  state = $state<StreamState>('connecting');
  failure = $state.raw<Failure>();
  /** Whether history has been read. */
  isRead = $state(false);
  /** Whether there is more of it. */
  hasOlder = $state(false);
  isReadingOlder = $state(false);
  /** Ids of those that came live, to point them out. */
  fresh = $state.raw<ReadonlySet<string>>(new Set());
  #waiting: StoredEvent[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #deviceId = '';

  /** @param deviceId whose events; @param came is called when some came live; @param alarmed when an alarm came or changed */
  constructor(
    deviceId: () => string,
    private readonly came: () => void,
    private readonly alarmed: () => void = () => undefined,
  ) {
    $effect(() => {
      this.#deviceId = deviceId();
      this.events = [];
      this.isRead = false;
      const stop = new AbortController();
      const { signal } = stop;
      // History does not wait for a stream that opens slowly, or never.
      const patience = setTimeout(() => void this.#readHistory(signal), PATIENCE_MS);
      void listen(
        { deviceId: this.#deviceId },
        {
          event: (event) => this.#take(event),
          alarm: () => this.alarmed(),
          // What came between history and the stream is read once the stream is open.
          opened: (resumed) => {
            clearTimeout(patience);
            if (!resumed || !this.isRead) void this.#readHistory(signal);
          },
          state: (state, failure) => {
            this.state = state;
            this.failure = failure;
          },
        },
        signal,
      );
      return () => {
        stop.abort();
        clearTimeout(patience);
        clearTimeout(this.#timer);
        this.#timer = undefined;
        this.#waiting = [];
      };
    });
  }

  /** Reads what came before the oldest event. */
  async readOlder(): Promise<void> {
    const oldest = this.events.at(-1);
    if (!oldest || this.isReadingOlder) return;
    this.isReadingOlder = true;
    try {
      // `to` is not inclusive, and several events may share a millisecond.
      const to = new Date(Date.parse(oldest.receivedAt) + 1).toISOString();
      const older = await this.#history(to);
      this.hasOlder = older.length === HISTORY;
      this.events = merge(this.events, older);
      this.failure = undefined;
    } catch (error) {
      this.failure = asFailure(error);
    } finally {
      this.isReadingOlder = false;
    }
  }

  async #readHistory(signal: AbortSignal): Promise<void> {
    try {
      const read = await this.#history(undefined, signal);
      if (signal.aborted) return;
      this.hasOlder = read.length === HISTORY;
      this.events = merge(this.events, read);
      this.isRead = true;
    } catch (error) {
      if (!signal.aborted) this.failure = asFailure(error);
    }
  }

  async #history(to?: string, signal?: AbortSignal): Promise<StoredEvent[]> {
    const params = { path: { deviceId: this.#deviceId }, query: { limit: HISTORY, ...(to ? { to } : {}) } };
    const page = await done(api.GET('/v2/devices/{deviceId}/events', { params, ...(signal ? { signal } : {}) }));
    return page.data;
  }

  #take(event: StoredEvent): void {
    this.#waiting.push(event);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      const came = this.#waiting;
      this.#waiting = [];
      this.fresh = new Set(came.map(({ id }) => id));
      const all = merge(this.events, came);
      if (all.length > KEPT_MAX) this.hasOlder = true;
      this.events = all.slice(0, KEPT_MAX);
      this.came();
    }, SHOWN_EVERY_MS);
  }
}
