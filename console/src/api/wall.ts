import { type Schemas, done, open } from './client';
import { failureFrom } from './failure';

/** What a screen is shown by the link of a dashboard, which needs no session. */

export type WallBoard = Schemas['WallBoard'];
export type WallData = Schemas['WallWidgetData'];
export type WallReading = Schemas['WallReading'];

/** A dashboard as a link shows it. */
export interface ShownBoard {
  board: WallBoard;
  etag: string | null;
}

/** The scheme in whose name the link stands in the header: no server or proxy writes that down, as it does with addresses. */
function headersOf(link: string): { authorization: string } {
  return { authorization: `Wall ${link}` };
}

/** Reads the dashboard of a link; what was read before is given again where nothing has changed. @throws Failure */
export async function readWall(link: string, before: ShownBoard | undefined, signal: AbortSignal): Promise<ShownBoard> {
  const known = before?.etag ? { 'if-none-match': before.etag } : {};
  const { data, error, response } = await open.GET('/v2/wall', { headers: { ...headersOf(link), ...known }, signal });
  if (before && response.status === 304) return before;
  if (!data) throw failureFrom(response, error);
  return { board: data, etag: response.headers.get('etag') };
}

/** Reads what a widget of it shows. @throws Failure */
export function readWallWidget(link: string, widgetId: string, signal: AbortSignal): Promise<WallData> {
  const params = { path: { widgetId } };
  return done(open.GET('/v2/wall/widgets/{widgetId}', { params, headers: headersOf(link), signal }));
}
