import type { StatusText } from '../api/client';
import type { AlarmSeverity } from './alarms';
import { byUrgency } from './statuses';

/** The world as a square of this many units, in Mercator's projection, which keeps the shapes of what one zooms into. */
export const WORLD = 1_000;
/** Where the projection ends. */
const LATITUDE_MAX = 85;
/** The deepest zoom, in pixels a unit: some ten metres a pixel. */
export const ZOOM_MAX = 4_000;
/** What a single place is shown with, in units: some hundred kilometres. */
const SURROUNDINGS = 12;

export interface Place {
  lon: number;
  lat: number;
}

/** A part of the map in degrees. */
export interface MapBox {
  west: number;
  south: number;
  east: number;
  north: number;
}

/** A device on the map, or the devices of a cell of it. */
export interface MapPoint extends Place {
  id: string;
  name: string;
  status: StatusText;
  /** The highest severity of active alarms. */
  alarm?: AlarmSeverity | undefined;
  /** How many a cell holds, and the least box around them; they have no name. */
  several?: MapBox & { count: number };
}

/** What of the map is asked for: a box, and the side of its cells in degrees. */
export interface MapCells {
  box: MapBox;
  cellSize: number;
}

/** What is looked at: the middle in units, and pixels a unit. */
export interface View {
  x: number;
  y: number;
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

export function project({ lon, lat }: Place): [x: number, y: number] {
  const bound = (Math.min(Math.max(lat, -LATITUDE_MAX), LATITUDE_MAX) * Math.PI) / 180;
  const y = 0.5 - Math.log(Math.tan(Math.PI / 4 + bound / 2)) / (2 * Math.PI);
  return [(lon / 360 + 0.5) * WORLD, y * WORLD];
}

/** How many devices a point stands for. */
export function countOf({ several }: MapPoint): number {
  return several?.count ?? 1;
}

/** The least box around all that points stand for. */
export function boxOf(points: readonly MapPoint[]): MapBox {
  const boxes = points.map(({ lon, lat, several }) => several ?? { west: lon, south: lat, east: lon, north: lat });
  return {
    west: Math.min(...boxes.map(({ west }) => west)),
    south: Math.min(...boxes.map(({ south }) => south)),
    east: Math.max(...boxes.map(({ east }) => east)),
    north: Math.max(...boxes.map(({ north }) => north)),
  };
}

/** The corners of the box around points, to be looked at; none without any. */
export function cornersOf(points: readonly MapPoint[]): Place[] {
  if (points.length === 0) return [];
  const { west, south, east, north } = boxOf(points);
  return [
    { lon: west, lat: south },
    { lon: east, lat: north },
  ];
}

/** The place of a point, as exactly as one can point. */
export function unproject(x: number, y: number): Place {
  const lat = (2 * Math.atan(Math.exp((0.5 - y / WORLD) * 2 * Math.PI)) - Math.PI / 2) * (180 / Math.PI);
  const lon = (x / WORLD - 0.5) * 360;
  const exact = (value: number) => Math.round(value * 1e5) / 1e5;
  return { lon: exact(Math.min(Math.max(lon, -180), 180)), lat: exact(lat) };
}

/** The whole world, from side to side. */
export function zoomMin({ width, height }: Size): number {
  return Math.max(width, height) / WORLD;
}

/** A view that shows nothing beyond the world. */
export function within({ x, y, zoom }: View, size: Size): View {
  const bound = Math.min(Math.max(zoom, zoomMin(size)), ZOOM_MAX);
  const middle = (at: number, pixels: number) => {
    const half = Math.min(pixels / bound / 2, WORLD / 2);
    return Math.min(Math.max(at, half), WORLD - half);
  };
  return { x: middle(x, size.width), y: middle(y, size.height), zoom: bound };
}

/** Nearer or farther, around a point of the screen that stays where it is. */
export function zoomedView(view: View, factor: number, at: { x: number; y: number }, size: Size): View {
  const zoom = Math.min(Math.max(view.zoom * factor, zoomMin(size)), ZOOM_MAX);
  const [dx, dy] = [at.x - size.width / 2, at.y - size.height / 2];
  const x = view.x + dx / view.zoom - dx / zoom;
  const y = view.y + dy / view.zoom - dy / zoom;
  return within({ x, y, zoom }, size);
}

/** The view in which all of these are seen; without any, the inhabited world. */
export function viewOf(places: readonly Place[], size: Size, padding = 48): View {
  if (places.length === 0) return within({ x: WORLD / 2, y: WORLD * 0.42, zoom: 0 }, size);
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const place of places) {
    const [x, y] = project(place);
    left = Math.min(left, x);
    right = Math.max(right, x);
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
  }
  const room = (pixels: number) => Math.max(pixels - 2 * padding, pixels / 3);
  const zoom = Math.min(
    room(size.width) / Math.max(right - left, SURROUNDINGS),
    room(size.height) / Math.max(bottom - top, SURROUNDINGS),
  );
  return within({ x: (left + right) / 2, y: (top + bottom) / 2, zoom }, size);
}

/** Tiles in which a map is asked for, in pixels: who moves it a little asks for nothing. */
const TILE_PX = 256;

/** The cells of a view, as wide as a mark: whole tiles of a level of zoom, so that they stay where they are. */
export function cellsOf(view: View, size: Size, level: number, markPx: number): MapCells {
  const tile = TILE_PX / level;
  const edges = (middle: number, pixels: number): [number, number] => {
    const half = pixels / view.zoom / 2;
    return [
      Math.max(Math.floor((middle - half) / tile) * tile, 0),
      Math.min(Math.ceil((middle + half) / tile) * tile, WORLD),
    ];
  };
  const [[left, right], [top, bottom]] = [edges(view.x, size.width), edges(view.y, size.height)];
  const [first, last] = [unproject(left, bottom), unproject(right, top)];
  // Whoever stands beyond the projection is drawn at its edge.
  const south = bottom >= WORLD ? -90 : first.lat;
  const north = top <= 0 ? 90 : last.lat;
  return { box: { west: first.lon, south, east: last.lon, north }, cellSize: (markPx / level / WORLD) * 360 };
}

/** Devices that stand so near that they are one mark. */
export interface Cluster {
  id: string;
  x: number;
  y: number;
  points: MapPoint[];
  /** Devices. */
  count: number;
  /** The most urgent of its statuses. */
  status: StatusText;
  /** The highest severity of active alarms. */
  alarm: AlarmSeverity | undefined;
}

const NOBODY: readonly Cluster[] = [];
/** More than the rows of any grid of cells, so that a cell is told by one number. */
const ROWS_MAX = 2 ** 20;

/** Brings together what is nearer than `radius` units. It depends on the zoom, not on the part of the world in view. */
export function clusters(points: readonly MapPoint[], radius: number): Cluster[] {
  const cells = new Map<number, Cluster[]>();
  const found: Cluster[] = [];
  for (const point of points) {
    const [x, y] = project(point);
    const cell = Math.floor(x / radius) * ROWS_MAX + Math.floor(y / radius);
    const near = nearest(cells, cell, x, y, radius);
    if (near) {
      near.points.push(point);
      near.count += countOf(point);
      if (byUrgency(point.status, near.status) < 0) near.status = point.status;
      if (point.alarm && (!near.alarm || byUrgency(point.alarm, near.alarm) < 0)) near.alarm = point.alarm;
      continue;
    }
    const { id, status, alarm } = point;
    const cluster = { id, x, y, points: [point], count: countOf(point), status, alarm };
    found.push(cluster);
    const neighbours = cells.get(cell);
    if (neighbours) neighbours.push(cluster);
    else cells.set(cell, [cluster]);
  }
  return found;
}

/** The nearest cluster within the radius, of those in a cell and in the eight around it. */
function nearest(
  cells: ReadonlyMap<number, Cluster[]>,
  cell: number,
  x: number,
  y: number,
  radius: number,
): Cluster | undefined {
  let best: Cluster | undefined;
  let least = radius * radius;
  for (let column = cell - ROWS_MAX; column <= cell + ROWS_MAX; column += ROWS_MAX) {
    for (let at = column - 1; at <= column + 1; at += 1) {
      for (const cluster of cells.get(at) ?? NOBODY) {
        const distance = (cluster.x - x) ** 2 + (cluster.y - y) ** 2;
        if (distance < least) {
          best = cluster;
          least = distance;
        }
      }
    }
  }
  return best;
}
