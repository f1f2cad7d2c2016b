import { searchParams } from 'sv-router';
import { untrack } from 'svelte';

const NEW = 'new';

/**
 * Whether the dialog of a page that makes something is open. An address with `new` opens it, also where one is on that page already;
 * when it is closed the address has it no longer. Call it while a page is made.
 */
export function creating(): { isOpen: boolean } {
  let isOpen = $state(searchParams.has(NEW));
  $effect(() => {
    if (searchParams.has(NEW)) isOpen = true;
  });
  $effect(() => {
    if (isOpen) return;
    untrack(() => {
      if (searchParams.has(NEW)) searchParams.delete(NEW, undefined, { replace: true });
    });
  });
  return {
    get isOpen() {
      return isOpen;
    },
    set isOpen(is) {
      isOpen = is;
    },
  };
}
