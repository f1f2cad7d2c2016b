import type { StreamState } from '../api/stream';
import { listen } from '../api/stream';
import { type Counted, counted } from './rate';

/** Events that come to a fleet just now, counted from its stream while the page is looked at. */
export class Rate {
  state = $state<StreamState>('connecting');
  now = $state.raw<Counted>({ seconds: [], total: 0, isFull: false });
  /** Too many come to count them all: the figure is that of a few seconds, taken now and then. */
  isSampled = $state(false);
  #isHidden = $state(document.hidden);
  #isResting = $state(false);

  constructor(organizationId: () => string) {
    $effect(() => {
      const see = (): void => {
        this.#isHidden = document.hidden;
      };
      document.addEventListener('visibilitychange', see);
      return () => document.removeEventListener('visibilitychange', see);
    });
    $effect(() => {
      const whose = organizationId();
      // A stream costs its server a connection: nobody looks, nobody listens.
      if (whose === '' || this.#isHidden) return;
      if (this.#isResting) return this.#rest();
      return this.#count(whose);
    });
  }

  #rest(): () => void {
    const timer = setTimeout(() => {
      this.#isResting = false;
    }, RESTED_MS);
    return () => clearTimeout(timer);
  }

  #count(organizationId: string): () => void {
    const stop = new AbortController();
    let seconds: number[] = [];
    let inThisSecond = 0;
    const timer = setInterval(() => {
      if (this.state !== 'live') return;
      seconds = [...seconds, inThisSecond].slice(-SECONDS);
      inThisSecond = 0;
      const now = counted(seconds, SECONDS);
      if (!this.isSampled || seconds.length >= SAMPLE_SECONDS) this.now = now;
      if (seconds.length < SAMPLE_SECONDS) return;
      const lately = seconds.slice(-SAMPLE_SECONDS).reduce((sum, count) => sum + count, 0) / SAMPLE_SECONDS;
      this.isSampled = lately > COUNTED_MAX;
      if (this.isSampled) {
        this.now = counted(seconds.slice(-SAMPLE_SECONDS), SECONDS);
        this.#isResting = true;
      }
    }, 1_000);
    void listen(
      { organizationId },
      {
        event: ({ type }) => {
          if (type === 'deviceEvent') inThisSecond += 1;
        },
        opened: () => undefined,
        state: (state) => {
          this.state = state;
          // What came while nobody listened is not known: counting begins anew.
          if (state !== 'live') seconds = [];
          inThisSecond = 0;
        },
      },
      stop.signal,
    );
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }
}

/** So far back it counts. */
const SECONDS = 60;
/** Events a second up to which each is counted. */
const COUNTED_MAX = 200;
const SAMPLE_SECONDS = 5;
const RESTED_MS = 30_000;
