import { connection } from './connection.svelte';
import { type Schemas, api, done, open } from './client';
import { type Fault, arrived, failureOf } from './failure';
import { type Metrics, readMetrics } from '../lib/metrics';

/** Time between two looks at the health that is shown. */
export const HEALTH_REFRESHED_EVERY_MS = 10_000;

/** How scheduled backups stand. */
export interface Backup {
  lastGoodAt: string | null;
  failing: boolean;
}

/** Whether the server can work; if not, which of its stores cannot be reached, and why. */
export interface Health {
  isReady: boolean;
  faults: readonly Fault[];
  /** Nothing where none are scheduled. */
  backup?: Backup;
}

/** What the server is. @throws Failure */
export function about(signal: AbortSignal): Promise<Schemas['About']> {
  return done(open.GET('/v2/about', { signal }));
}

/** The health of the server; null where it is shown at another address alone. @throws Failure */
export async function health(signal: AbortSignal): Promise<Health | null> {
  const response = await arrived(connection.fetch('/health/ready', { signal, cache: 'no-store' }));
  if (response.status === 404) return null;
  if (response.ok) {
    const { backup } = (await arrived(response.json())) as Pick<Health, 'backup'>;
    return { isReady: true, faults: [], backup };
  }
  const failure = await failureOf(response);
  if (response.status !== 503) throw failure;
  return { isReady: false, faults: failure.fields };
}

/** The nodes and the databases of the platform, for those who run it. @throws Failure */
export function platform(signal: AbortSignal): Promise<Schemas['Platform']> {
  return done(api.GET('/v2/platform', { signal }));
}

/** The figures of the server; null where they are shown at another address alone. @throws Failure */
export async function metrics(signal: AbortSignal): Promise<Metrics | null> {
  const response = await arrived(connection.fetch('/metrics', { signal, cache: 'no-store' }));
  if (response.status === 404) return null;
  if (!response.ok) throw await failureOf(response);
  return readMetrics(await arrived(response.text()));
}
