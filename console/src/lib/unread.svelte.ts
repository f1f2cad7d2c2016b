import { api, done } from '../api/client';

const POLLED_EVERY_MS = 30_000;

/** How many notifications wait to be read: for the bell. */
class Unread {
  count = $state(0);

  /** Keeps the count until the function that it gives is called. */
  watch(): () => void {
    const look = (): void => {
      if (!document.hidden) void this.refresh();
    };
    look();
    const timer = setInterval(look, POLLED_EVERY_MS);
    document.addEventListener('visibilitychange', look);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }

  async refresh(): Promise<void> {
    try {
      const page = await done(api.GET('/v2/notifications', { params: { query: { unread: true, limit: 1 } } }));
      this.count = page.meta.totalDocs;
    } catch {
      // The count of before stays; the page of notifications says what is wrong.
    }
  }
}

export const unread = new Unread();
