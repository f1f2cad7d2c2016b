import { SvelteMap } from 'svelte/reactivity';
import { asFailure } from '../api/failure';

/** After so long a name is asked for again, where the server names no other time. */
const AGAIN_AFTER_S = 10;

/**
 * Gives the names of things, each asked for once: undefined until it is known, empty of what is gone or out of reach. What failed
 * for a while is asked for again, so that nothing waits for ever.
 */
export function namesOf(read: (id: string) => Promise<string>): (id: string) => string | undefined {
  const names = new SvelteMap<string, string>();
  const asked = new Set<string>();

  async function ask(id: string): Promise<void> {
    try {
      names.set(id, await read(id));
    } catch (error) {
      const failure = asFailure(error);
      if (failure.mayPass) setTimeout(() => void ask(id), (failure.retryAfter ?? AGAIN_AFTER_S) * 1_000);
      else if (failure.isRefusal) names.set(id, '');
      else asked.delete(id);
    }
  }

  return (id) => {
    if (!asked.has(id)) {
      asked.add(id);
      void ask(id);
    }
    return names.get(id);
  };
}
