import { type Notification, api, done } from '../api/client';
import { lookNowAndThen } from './visible.svelte';

const POLLED_EVERY_MS = 15_000;
/** So many of the newest are read with the count: among them is what everybody is told. */
const NEWEST = 20;

/** How many notifications wait to be read, for the bell; and what everybody is told, for the band above the page. */
class Unread {
  count = $state(0);
  /** The newest word to everybody that was not read yet. */
  notice = $state.raw<Notification | null>(null);

  /** Keeps the count until the function that it gives is called. */
  watch(): () => void {
    return lookNowAndThen(POLLED_EVERY_MS, () => void this.refresh());
  }

  async refresh(): Promise<void> {
    try {
      const page = await done(api.GET('/v2/notifications', { params: { query: { unread: true, limit: NEWEST } } }));
      this.count = page.meta.totalDocs;
      this.notice = page.data.find(({ type }) => type === 'systemNotification') ?? null;
    } catch {
      // The count of before stays; the page of notifications says what is wrong.
    }
  }
}

export const unread = new Unread();
