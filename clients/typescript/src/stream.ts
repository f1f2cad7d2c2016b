import { IsobarError, asError } from './errors.js';
import { type Message, messagesOf } from './messages.js';
import { pause } from './pause.js';
import type { components } from './schema.js';
import { backoff } from './transport.js';

/** An event of a device, or an alarm that has changed. */
export type StreamItem =
  | { type: 'deviceEvent' | 'cloudEvent'; id: string; event: components['schemas']['Event'] }
  | { type: 'alarm'; alarm: components['schemas']['Alarm'] };

/** Where a stream begins, and when it ends. */
export interface StreamOptions {
  /** Ends the stream: it throws the reason of the abort. */
  signal?: AbortSignal;
  /** The id that the stream had last, to go on behind it. */
  lastEventId?: string;
  /** Is told of each break, and of the pause until the next attempt. */
  onBreak?: (error: IsobarError, pauseMs: number) => void;
}

/** A stream that was open for so long has not failed at its start: the next attempt comes soon. */
const SOUND_MS = 10_000;
/** Longest part of an answer whose `Retry-After` is honoured, in seconds. */
const RETRY_AFTER_SECONDS_MAX = 120;

/**
 * Yields what a stream carries, and opens it again behind the last event after each break, until it is ended by `signal` or the
 * loop, or is refused. Events come once; alarms that changed during a break do not come, and are in the list of alarms.
 * @param open asks for the stream behind this event
 * @throws IsobarError when the server refuses the stream; with status 400 and the field `header.Last-Event-ID` when it cannot be resumed
 */
export async function* resumed(
  open: (lastEventId: string, signal: AbortSignal) => Promise<Response>,
  options: StreamOptions,
): AsyncGenerator<StreamItem, never> {
  const leave = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, leave.signal]) : leave.signal;
  let lastId = options.lastEventId ?? '';
  try {
    for (let attempt = 0; ; attempt += 1) {
      let broken = new IsobarError(0, 'the stream ended');
      const begun = performance.now();
      try {
        const response = await open(lastId, signal);
        if (!response.body || !response.headers.get('content-type')?.startsWith('text/event-stream')) {
          throw new IsobarError(response.status, 'the answer is no stream of events');
        }
        for await (const message of messagesOf(response.body, signal)) {
          lastId = message.id || lastId;
          const item = itemOf(message);
          if (item) yield item;
        }
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        broken = asError(error);
        if (!broken.isTemporary && broken.status < 500) throw broken;
      }
      if (performance.now() - begun > SOUND_MS) attempt = 0;
      const wait = Math.max(Math.min(broken.retryAfter ?? 0, RETRY_AFTER_SECONDS_MAX) * 1_000, backoff(attempt));
      options.onBreak?.(broken, wait);
      await pause(wait, signal);
    }
  } finally {
    leave.abort();
  }
}

/** Returns what a message carries; nothing for kinds that this version does not know. */
function itemOf({ event, id, data }: Message): StreamItem | undefined {
  if (event === 'deviceEvent' || event === 'cloudEvent') {
    return { type: event, id, event: JSON.parse(data) as components['schemas']['Event'] };
  }
  return event === 'alarm' ? { type: event, alarm: JSON.parse(data) as components['schemas']['Alarm'] } : undefined;
}
