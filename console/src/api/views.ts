import { type Schemas, api, done } from './client';

export type View = Schemas['View'];
export type ViewInput = Schemas['ViewInput'];

/** Views that a user may have. */
export const VIEWS_MAX = 50;

/** Lists the user's views of the device list, by name. @throws Failure */
export async function listViews(signal: AbortSignal): Promise<View[]> {
  const { data } = await done(api.GET('/v2/views', { params: { query: { limit: VIEWS_MAX } }, signal }));
  return data;
}

/** Makes a view. @throws Failure */
export function createView(body: ViewInput): Promise<View> {
  return done(api.POST('/v2/views', { body }));
}

/** Writes a view; the organization stays where it is left out. @throws Failure */
export function writeView(id: string, body: ViewInput): Promise<View> {
  return done(api.PUT('/v2/views/{id}', { params: { path: { id } }, body }));
}

/** Deletes a view. @throws Failure */
export async function deleteView(id: string): Promise<void> {
  await done(api.DELETE('/v2/views/{id}', { params: { path: { id } } }));
}
