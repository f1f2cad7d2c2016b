import { authorizedFetch, type StoredEvent } from './client';
import { type Failure, asFailure, failureOf, isAbort } from './failure';

/** A message of a stream of server-sent events. */
export interface Message {
  event: string;
  id: string;
  data: string;
}

/** Takes a stream of server-sent events apart, however its bytes are cut. */
export class MessageReader {
  #rest = '';
  #event = '';
  #id = '';
  #data: string[] = [];

  /** The messages that are whole with this piece of text. */
  push(text: string): Message[] {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    const messages: Message[] = [];
    for (const line of lines) {
      const message = this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (message) messages.push(message);
    }
    return messages;
  }

  #line(line: string): Message | null {
    if (line === '') {
      const message = { event: this.#event || 'message', id: this.#id, data: this.#data.join('\n') };
      const isWhole = this.#data.length > 0;
      this.#event = '';
      this.#data = [];
      return isWhole ? message : null;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    else if (field === 'id') this.#id = value;
    else if (field === 'data') this.#data.push(value);
    return null;
  }
}

/** Between two attempts: longer each time, to a limit. */
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

export type StreamState = 'connecting' | 'live' | 'waiting' | 'refused';

export interface Listener {
  event(event: StoredEvent): void;
  /** The stream is open. `resumed`: it goes on behind the last event; else what came before must be read from history. */
  opened(resumed: boolean): void;
  state(state: StreamState, failure?: Failure): void;
}

/**
 * Listens to the events of a device, or of an organization and all beneath it, until `signal` says stop. A stream ends with the
 * token that opened it, and with the network: it is opened again behind the last event, so that nothing is missed.
 */
export async function listen(
  whom: { deviceId: string } | { organizationId: string },
  listener: Listener,
  signal: AbortSignal,
): Promise<void> {
  let lastId = '';
  let attempts = 0;
  const path = `/v2/events/stream?${new URLSearchParams(whom)}`;
  while (!signal.aborted) {
    let ended: Failure | undefined;
    try {
      listener.state('connecting');
      const headers: Record<string, string> = lastId ? { 'last-event-id': lastId } : {};
      const response = await authorizedFetch(path, { headers, signal, cache: 'no-store' });
      if (response.ok && response.body) {
        attempts = 0;
        listener.opened(lastId !== '');
        listener.state('live');
        for await (const message of messages(response.body)) {
          lastId = message.id || lastId;
          listener.event(JSON.parse(message.data) as StoredEvent);
        }
      } else {
        ended = await failureOf(response);
      }
    } catch (error) {
      if (isAbort(error) || signal.aborted) return;
      ended = asFailure(error);
    }
    if (ended && !ended.mayPass) {
      // What cannot be resumed begins anew; everything else that is refused stays so.
      if (ended.status === 400 && lastId) lastId = '';
      else return listener.state('refused', ended);
    }
    if (ended) listener.state('waiting', ended);
    const wait = (ended?.retryAfter ?? 0) * 1_000 || RETRY_MS[Math.min(attempts, RETRY_MS.length - 1)] || 0;
    attempts += 1;
    await pause(wait, signal);
  }
}

async function* messages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message> {
  const reader = new MessageReader();
  const decoder = new TextDecoder();
  const source = body.getReader();
  try {
    for (;;) {
      const { value, done } = await source.read();
      if (done) return;
      yield* reader.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    void source.cancel().catch(() => undefined);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
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
