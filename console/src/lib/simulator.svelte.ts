import { Failure, arrived, asFailure, failureOf } from '../api/failure';
import { READING } from './firstSteps';

/** As a device would: steady, and slow enough to be looked at. */
const SENT_EVERY_MS = 2_000;
const NOISE = 0.3;
const TOO_MANY_WAIT_S = 10;

export interface Reading {
  temperature: number;
  humidity: number;
}

/** A device that lives in the browser: it sends real events with its own token, and does what it is told. */
export class Simulator {
  /** Where its temperature is going; somebody moves it. */
  warmth = $state(21);
  sent = $state(0);
  last = $state.raw<Reading | null>(null);
  /** Whether it was told to switch its fan on. */
  fan = $state(false);
  /** Why the last event was not taken. */
  failure = $state.raw<Failure | null>(null);
  /** Its token has ended: somebody has made a new one elsewhere. */
  isOut = $state(false);
  #temperature = 21;
  #stop: AbortController | null = null;

  /** Sends until `stop`. */
  start(token: string): void {
    this.stop();
    this.isOut = false;
    this.#stop = new AbortController();
    void this.#live(token, this.#stop.signal);
  }

  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
  }

  async #live(token: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      let wait = SENT_EVERY_MS;
      try {
        await this.#send(token, signal);
        await this.#hear(token, signal);
        this.failure = null;
      } catch (error) {
        if (signal.aborted) return;
        this.failure = asFailure(error);
        if (this.failure.status === 401 || this.failure.status === 404) {
          this.isOut = true;
          return;
        }
        if (this.failure.status === 429) wait = (this.failure.retryAfter ?? TOO_MANY_WAIT_S) * 1_000;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async #send(token: string, signal: AbortSignal): Promise<void> {
    // Half of the way at each step, as a room that warms up.
    this.#temperature += (this.warmth - this.#temperature) / 2 + (Math.random() - 0.5) * NOISE;
    const temperature = Math.round(this.#temperature * 10) / 10;
    const reading = { temperature, humidity: Math.round(65 - temperature) };
    const response = await arrived(
      fetch(`/v2/events/device?elementName=${READING}`, {
        method: 'POST',
        headers: { cloud: token, 'content-type': 'application/json' },
        body: JSON.stringify(reading),
        signal,
      }),
    );
    if (!response.ok) throw await failureOf(response);
    this.sent += 1;
    this.last = reading;
  }

  /** Takes what waits for it. */
  async #hear(token: string, signal: AbortSignal): Promise<void> {
    const response = await arrived(fetch('/v2/events/cloud', { headers: { cloud: token }, signal, cache: 'no-store' }));
    if (!response.ok) throw await failureOf(response);
    for (const { payload } of (await arrived(response.json())) as { payload: unknown }[]) {
      const { on } = (payload ?? {}) as { on?: unknown };
      if (typeof on === 'boolean') this.fan = on;
    }
  }
}
