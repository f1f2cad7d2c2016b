import { listen } from './stream';

/** What comes together is told once. */
const TOLD_AFTER_MS = 500;

type Whom = { deviceId: string } | { organizationId: string };

/** Who hears of alarms by one stream. */
const streams = new Map<string, { heard: Set<() => void>; stop: AbortController }>();

/**
 * Calls `heard` soon after alarms came or changed, of a device or of an organization and all beneath it, until the function that it
 * gives is called. Those who ask for the same share one stream.
 */
export function onAlarms(whom: Whom, heard: () => void): () => void {
  const name = JSON.stringify(whom);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const soon = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      heard();
    }, TOLD_AFTER_MS);
  };
  const shared = streams.get(name) ?? open(name, whom);
  shared.heard.add(soon);
  return () => {
    clearTimeout(timer);
    shared.heard.delete(soon);
    if (shared.heard.size > 0) return;
    shared.stop.abort();
    streams.delete(name);
  };
}

function open(name: string, whom: Whom): { heard: Set<() => void>; stop: AbortController } {
  const shared = { heard: new Set<() => void>(), stop: new AbortController() };
  streams.set(name, shared);
  const tell = (): void => {
    for (const soon of shared.heard) soon();
  };
  // Whatever changed while there was no stream is read once there is one again.
  const opened = (resumed: boolean): void => void (resumed && tell());
  void listen(whom, { event: () => undefined, alarm: tell, opened, state: () => undefined }, shared.stop.signal);
  return shared;
}
