import { type Schemas, api, done } from './client';
import { failureFrom } from './failure';

export type Board = Schemas['Board'];
export type BoardHead = Schemas['BoardHead'];
export type BoardInput = Schemas['DashboardInput'];

const BOARDS_MAX = 100;

/** A dashboard as the server has it. */
export interface StoredBoard {
  board: Board;
  etag: string | null;
}

/** Lists the dashboards that an organization shows, the first one first. @throws Failure */
export async function listBoards(id: string, signal?: AbortSignal): Promise<BoardHead[]> {
  const params = { path: { id }, query: { limit: BOARDS_MAX } };
  const page = await done(api.GET('/v2/organizations/{id}/dashboards', { params, ...(signal ? { signal } : {}) }));
  return page.data;
}

/** Reads a dashboard. @throws Failure */
export async function readBoard(id: string, dashboardId: string, signal?: AbortSignal): Promise<StoredBoard> {
  const params = { path: { id, dashboardId } };
  const { data, error, response } = await api.GET('/v2/organizations/{id}/dashboards/{dashboardId}', {
    params,
    ...(signal ? { signal } : {}),
  });
  if (!data) throw failureFrom(response, error);
  return { board: data, etag: response.headers.get('etag') };
}

/** Makes a dashboard. @throws Failure */
export function createBoard(id: string, body: BoardInput): Promise<Board> {
  return done(api.POST('/v2/organizations/{id}/dashboards', { params: { path: { id } }, body }));
}

/** Overwrites a dashboard, with a tag only if it still has it. @throws Failure; 412 where it has not */
export function writeBoard(id: string, dashboardId: string, body: BoardInput, etag: string | null): Promise<Board> {
  const header = etag === null ? {} : { 'If-Match': etag };
  const params = { path: { id, dashboardId }, header };
  return done(api.PUT('/v2/organizations/{id}/dashboards/{dashboardId}', { params, body }));
}

/** Deletes a dashboard, if it still has this tag. @throws Failure; 412 where it has not */
export async function deleteBoard(id: string, dashboardId: string, etag: string | null): Promise<void> {
  const header = etag === null ? {} : { 'If-Match': etag };
  const params = { path: { id, dashboardId }, header };
  await done(api.DELETE('/v2/organizations/{id}/dashboards/{dashboardId}', { params }));
}
