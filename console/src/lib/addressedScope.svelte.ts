import { searchParams } from 'sv-router';
import { untrack } from 'svelte';
import { api, done } from '../api/client';
import { session } from '../api/session.svelte';
import { scope } from './scope.svelte';

/** How the address names the organization that is looked at. */
export const ORGANIZATION = 'organization';

/**
 * Has the address name the organization that is looked at, where it is not the user's own, so that it can be passed on; whoever
 * opens such an address looks at that organization. Call it while a page is made.
 */
export function scopeInAddress(): void {
  let wanted = $state(String(searchParams.get(ORGANIZATION) ?? ''));

  $effect(() => {
    const [user, id] = [session.user, wanted];
    if (!user || id === '') return;
    if (id === untrack(() => scope.of(user).id)) {
      wanted = '';
      return;
    }
    const stop = new AbortController();
    done(api.GET('/v2/organizations/{id}', { params: { path: { id } }, signal: stop.signal })).then(
      (organization) => {
        if (stop.signal.aborted) return;
        scope.choose(user, organization);
        wanted = '';
      },
      // One that is gone or out of reach is left for the one that was looked at.
      () => {
        if (!stop.signal.aborted) wanted = '';
      },
    );
    return () => stop.abort();
  });

  $effect(() => {
    const user = session.user;
    if (!user || wanted !== '') return;
    const { id, isOwn } = scope.of(user);
    untrack(() => {
      if (isOwn && searchParams.has(ORGANIZATION)) searchParams.delete(ORGANIZATION, undefined, { replace: true });
      else if (!isOwn && searchParams.get(ORGANIZATION) !== id) searchParams.set(ORGANIZATION, id, { replace: true });
    });
  });
}
