import type { StatusText } from '../api/client';
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

/** A device on the map. */
export interface MapPoint extends Place {
  id: string;
  name: string;
  status: StatusText;
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

/** Devices that stand so near that they are one mark. */
export interface Cluster {
  id: string;
  x: number;
  y: number;
  points: MapPoint[];
  /** The most urgent of its statuses. */
  status: StatusText;
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
      if (byUrgency(point.status, near.status) < 0) near.status = point.status;
      continue;
    }
    const cluster: Cluster = { id: point.id, x, y, points: [point], status: point.status };
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
