import type { Preset, Span } from '../../lib/series';

/** The range of time that all widgets of a dashboard share. */
export interface Time {
  preset: Preset;
  own: Span | null;
  isLive: boolean;
}

/** How often what has no series of its own is read again. */
export const READ_EVERY_MS = 10_000;
