import { hexColour } from '../lib/colour';
import { type Branding, api, authorizedFetch, done } from './client';
import { arrived, failureOf } from './failure';

/** What the console itself takes of a branding. It stands in the part that is free to its users. */
export interface ConsoleBrand {
  /** `#rrggbb`. */
  accent: string | null;
  /** Whether the organization's picture stands as logo in the console. */
  hasLogo: boolean;
}

/** An organization on the way to the one that is looked at, with its branding. */
export interface BrandStep {
  id: string;
  name: string;
  brand: ConsoleBrand;
}

export function consoleBrand(branding: Branding): ConsoleBrand {
  const { accent, logo } = (branding.domainPublicConfiguration.console ?? {}) as { accent?: unknown; logo?: unknown };
  return { accent: hexColour(accent), hasLogo: logo === true };
}

/** The branding's free part with another brand of the console in it; whatever else stands there stays. */
export function withConsoleBrand(branding: Branding, brand: ConsoleBrand): Record<string, unknown> {
  const { console: present, ...others } = branding.domainPublicConfiguration;
  const kept = typeof present === 'object' && present !== null ? present : {};
  return { ...others, console: { ...kept, accent: brand.accent, logo: brand.hasLogo } };
}

/** The brands along the path to an organization, itself first, as far up as the caller reaches. @throws Failure */
export async function brandsAlong(organizationId: string, signal?: AbortSignal): Promise<BrandStep[]> {
  const init = signal ? { signal } : {};
  const { path } = await done(api.GET('/v2/organizations/{id}', { params: { path: { id: organizationId } }, ...init }));
  return Promise.all(
    [...path].reverse().map(async ({ id, name }) => {
      const branding = await done(api.GET('/v2/organizations/{id}/branding', { params: { path: { id } }, ...init }));
      return { id, name, brand: consoleBrand(branding) };
    }),
  );
}

/** The picture of an organization; null when it has none. @throws Failure */
export async function logoOf(organizationId: string, signal?: AbortSignal): Promise<Blob | null> {
  const response = await authorizedFetch(`/v2/organizations/${organizationId}/image.png`, signal ? { signal } : {});
  if (response.status === 404) return null;
  if (!response.ok) throw await failureOf(response);
  return arrived(response.blob());
}

/** Makes a file the picture of an organization. @throws Failure */
export async function putLogo(organizationId: string, file: Blob): Promise<void> {
  const response = await authorizedFetch(`/v2/organizations/${organizationId}/image`, {
    method: 'POST',
    headers: { 'content-type': 'text/plain' },
    body: await dataUri(file),
  });
  if (!response.ok) throw await failureOf(response);
}

function dataUri(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error('the file cannot be read'));
    reader.readAsDataURL(file);
  });
}
