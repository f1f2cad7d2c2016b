import { searchParams } from 'sv-router';

/**
 * Changes what stands in the address of the page, all of it as one step: null takes a name away. With
 * `isStep` the way back of the browser leads to the address before.
 */
export function putInAddress(changes: Record<string, string | null>, isStep = false): void {
  let replace = !isStep;
  const once = (): { replace: boolean } => {
    const options = { replace };
    replace = true;
    return options;
  };
  for (const [name, value] of Object.entries(changes)) {
    if (searchParams.toURLSearchParams().get(name) === value) continue;
    if (value === null) searchParams.delete(name, undefined, once());
    else searchParams.set(name, value, once());
  }
}
