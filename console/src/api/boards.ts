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

export type BoardLink = Schemas['BoardLink'];
export type NewBoardLink = Schemas['NewBoardLink'];

/** More links than a dashboard may have. */
const LINKS_MAX = 100;

/** Lists the links that show a dashboard on screens, the oldest first. @throws Failure */
export async function listBoardLinks(id: string, dashboardId: string, signal?: AbortSignal): Promise<BoardLink[]> {
  const params = { path: { id, dashboardId }, query: { limit: LINKS_MAX } };
  const asked = { params, ...(signal ? { signal } : {}) };
  return (await done(api.GET('/v2/organizations/{id}/dashboards/{dashboardId}/links', asked))).data;
}

/** Makes a link, whose address is shown this once. @throws Failure */
export function createBoardLink(
  id: string,
  dashboardId: string,
  body: { name: string; expiresAt: string },
): Promise<NewBoardLink> {
  const params = { path: { id, dashboardId } };
  return done(api.POST('/v2/organizations/{id}/dashboards/{dashboardId}/links', { params, body }));
}

/** Deletes a link: its screens show nothing more. @throws Failure */
export async function deleteBoardLink(id: string, dashboardId: string, linkId: string): Promise<void> {
  const params = { path: { id, dashboardId, linkId } };
  await done(api.DELETE('/v2/organizations/{id}/dashboards/{dashboardId}/links/{linkId}', { params }));
}
