import { type AlarmSummary, alarmSummary } from '../api/alarms';

const POLLED_EVERY_MS = 15_000;

/** How many alarms of the organization that is looked at are active, and wait to be acknowledged: for the number beside the bell. */
class AlarmCount {
  summary = $state.raw<AlarmSummary | null>(null);
  #organizationId = '';

  /** Keeps the numbers of this organization until the function that it gives is called. */
  watch(organizationId: string): () => void {
    this.#organizationId = organizationId;
    this.summary = null;
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
    const asked = this.#organizationId;
    if (asked === '') return;
    try {
      const summary = await alarmSummary(asked);
      if (this.#organizationId === asked) this.summary = summary;
    } catch {
      // The numbers of before stay; the page of alarms says what is wrong.
    }
  }
}

export const alarmCount = new AlarmCount();
