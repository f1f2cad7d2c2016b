import { messagesOf } from 'isobar-client/messages';
import { alarmCount } from '../lib/alarmCount.svelte';
import { readAnswer } from '../lib/exact';
import type { Alarm } from './alarms';
import { connection } from './connection.svelte';
import { authorizedFetch, type StoredEvent } from './client';
import { type Failure, asFailure, failureOf, isAbort } from './failure';

/** Between two attempts: longer each time, to a limit. */
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

export type StreamState = 'connecting' | 'live' | 'waiting' | 'refused';

/** The state to be shown: a stream whose connection was lost is not live, though it may not have noticed yet. */
export function shownState(state: StreamState): StreamState {
  return state === 'live' && connection.isLost ? 'waiting' : state;
}

export interface Listener {
  event(event: StoredEvent): void;
  /** An alarm has come or changed. */
  alarm?(alarm: Alarm): void;
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
  let wasOpen = false;
  const path = `/v2/events/stream?${new URLSearchParams(whom)}`;
  while (!signal.aborted) {
    let ended: Failure | undefined;
    try {
      // A stream that ends in peace, with its token, is opened again unseen.
      if (!wasOpen) listener.state('connecting');
      const headers: Record<string, string> = lastId ? { 'last-event-id': lastId } : {};
      const response = await authorizedFetch(path, { headers, signal, cache: 'no-store' });
      if (response.ok && response.body) {
        attempts = 0;
        wasOpen = true;
        listener.opened(lastId !== '');
        listener.state('live');
        for await (const message of messagesOf(response.body, signal)) {
          lastId = message.id || lastId;
          // The stream names its place before any event.
          if (!message.data) continue;
          // Events are named after their type.
          if (message.event === 'alarm') {
            alarmCount.changed();
            listener.alarm?.(readAnswer(message.data) as Alarm);
          } else listener.event(readAnswer(message.data) as StoredEvent);
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

/** Waits for so long, or until the network is back. */
function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, milliseconds);
    function finish(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', finish);
      removeEventListener('online', finish);
      resolve();
    }
    signal.addEventListener('abort', finish);
    addEventListener('online', finish);
  });
}
