/** What the console reads of a project's design. */

interface Element {
  type?: unknown;
  properties?: { integration?: unknown };
}

function elements(specification: unknown): [string, Element][] {
  const planes = (specification as { planes?: { cloud?: { elements?: unknown } } } | null)?.planes;
  const found = planes?.cloud?.elements;
  return typeof found === 'object' && found !== null ? (Object.entries(found) as [string, Element][]) : [];
}

/** The names of the elements to which devices send events over HTTP. */
export function deviceEventElements(specification: unknown): string[] {
  return elements(specification)
    .filter(([, { type, properties }]) => type === 'deviceEvent' && (properties?.integration ?? 'http') === 'http')
    .map(([name]) => name);
}

/** The names of the elements that send events to devices. */
export function cloudEventElements(specification: unknown): string[] {
  return elements(specification)
    .filter(([, { type }]) => type === 'cloudEvent')
    .map(([name]) => name);
}

/** The names of the elements that store values. Null: the design has no elements, and stores whatever comes. */
export function storageElements(specification: unknown): string[] | null {
  const all = elements(specification);
  return all.length === 0 ? null : all.filter(([, { type }]) => type === 'storage').map(([name]) => name);
}

/** Whether a webhook of this type sets something off: a design without elements stores whatever comes. */
export function hears(specification: unknown, integration: string): boolean {
  const all = elements(specification);
  return (
    all.length === 0 ||
    all.some(
      ([, { type, properties }]) => type === 'deviceEvent' && (properties?.integration ?? 'http') === integration,
    )
  );
}
