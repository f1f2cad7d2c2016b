import { type AlarmSummary, alarmSummary } from '../api/alarms';
import { lookNowAndThen } from './visible.svelte';

const POLLED_EVERY_MS = 15_000;
/** What changes together is counted once. */
const COUNTED_AFTER_MS = 1_000;

/** How many alarms of the organization that is looked at are active, and wait to be acknowledged: for the number beside the bell. */
class AlarmCount {
  summary = $state.raw<AlarmSummary | null>(null);
  #organizationId = '';
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Keeps the numbers of this organization until the function that it gives is called. */
  watch(organizationId: string): () => void {
    this.#organizationId = organizationId;
    this.summary = null;
    return lookNowAndThen(POLLED_EVERY_MS, () => void this.refresh());
  }

  /** Counts soon: a stream has told of an alarm. None is opened for it, and where there is none the numbers are polled. */
  changed(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.refresh();
    }, COUNTED_AFTER_MS);
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
