import { describe, expect, it } from 'vitest';
import {
  type MapPoint,
  WORLD,
  ZOOM_MAX,
  boxOf,
  cellsOf,
  clusters,
  cornersOf,
  project,
  unproject,
  viewOf,
  within,
  zoomMin,
  zoomedView,
} from './map';

const SIZE = { width: 800, height: 400 };
const point = (id: string, lon: number, lat: number, status: MapPoint['status'] = 'good'): MapPoint => ({
  id,
  name: id,
  lon,
  lat,
  status,
});

describe('places', () => {
  it('come back from where they are drawn', () => {
    for (const place of [
      { lon: 8.54, lat: 47.37 },
      { lon: -179.9, lat: -54.8 },
      { lon: 0, lat: 0 },
    ]) {
      expect(unproject(...project(place))).toEqual(place);
    }
    expect(project({ lon: 0, lat: 0 })).toEqual([WORLD / 2, WORLD / 2]);
    // The poles have no place in this projection.
    expect(project({ lon: 0, lat: 90 })[1]).toBeGreaterThan(0);
  });
});

describe('views', () => {
  it('show nothing beyond the world', () => {
    const far = within({ x: -50, y: 2_000, zoom: 0.1 }, SIZE);
    expect(far).toEqual({ x: 500, y: 750, zoom: zoomMin(SIZE) });
    expect(within({ x: 1, y: 1, zoom: 1e9 }, SIZE).zoom).toBe(ZOOM_MAX);
  });

  it('zoom around what is pointed at', () => {
    const view = { x: 520, y: 350, zoom: 2 };
    const at = { x: 600, y: 100 };
    const near = zoomedView(view, 3, at, SIZE);
    const under = ({ x, y, zoom }: typeof view) => [x + (at.x - 400) / zoom, y + (at.y - 200) / zoom];
    expect(near.zoom).toBe(6);
    expect(under(near)[0]).toBeCloseTo(under(view)[0] ?? 0);
    expect(under(near)[1]).toBeCloseTo(under(view)[1] ?? 0);
  });

  it('show all that there is, and a single place with what is around it', () => {
    const places = [point('a', 7, 46), point('b', 11, 48)];
    const { x, y, zoom } = viewOf(places, SIZE);
    for (const place of places) {
      const [px, py] = project(place);
      expect(Math.abs(px - x) * zoom).toBeLessThan(SIZE.width / 2);
      expect(Math.abs(py - y) * zoom).toBeLessThan(SIZE.height / 2);
    }
    expect(viewOf([point('a', 7, 46)], SIZE).zoom).toBeLessThan(ZOOM_MAX / 50);
    expect(viewOf([], SIZE).zoom).toBe(zoomMin(SIZE));
  });
});

describe('clusters', () => {
  it('show what burns above what is silent', () => {
    const near = [point('a', 13, 52, 'missing'), point('b', 13, 52, 'critical'), point('c', 13, 52, 'missing')];
    expect(clusters(near, 20).map(({ status }) => status)).toEqual(['critical']);
  });

  it('bring together what is near, with the most urgent status of all', () => {
    const found = clusters(
      [point('a', 8, 47), point('b', 8.01, 47, 'critical'), point('c', 8.02, 47), point('far', 20, 47)],
      1,
    );
    expect(found.map(({ id, points, status }) => [id, points.length, status])).toEqual([
      ['a', 3, 'critical'],
      ['far', 1, 'good'],
    ]);
  });

  it('tell the most severe alarm of all', () => {
    const alarmed = (id: string, alarm: MapPoint['alarm']) => ({ ...point(id, 13, 52), alarm });
    const near = [point('a', 13, 52), alarmed('b', 'warning'), alarmed('c', 'critical'), alarmed('d', 'info')];
    expect(clusters(near, 20).map(({ alarm }) => alarm)).toEqual(['critical']);
    expect(clusters([point('a', 13, 52)], 20).map(({ alarm }) => alarm)).toEqual([undefined]);
  });

  it('lose nobody, and take few marks for many devices', () => {
    const many = Array.from({ length: 10_000 }, (_, index) => point(`${index}`, (index * 7) % 170, (index * 13) % 80));
    const found = clusters(many, 40);
    expect(found.reduce((sum, { points }) => sum + points.length, 0)).toBe(10_000);
    expect(found.length).toBeLessThan(400);
    const places = found.map(({ x, y }) => [x, y] as const);
    places.forEach(([x, y], index) => {
      for (const [ox, oy] of places.slice(index + 1)) expect(Math.hypot(x - ox, y - oy)).toBeGreaterThanOrEqual(40);
    });
  });
});

describe('cells', () => {
  const cell = (count: number): MapPoint => ({
    ...point('cell', 8.2, 47.1, 'warning'),
    several: { west: 8, south: 47, east: 9, north: 48, count },
  });

  it('of a view cover it, and stay while it moves a little', () => {
    const view = { x: 520, y: 350, zoom: 4 };
    const asked = cellsOf(view, SIZE, 4, 44);
    for (const [x, y] of [
      [-400, -200],
      [400, 200],
    ] as const) {
      const { lon, lat } = unproject(view.x + x / view.zoom, view.y + y / view.zoom);
      const { west, south, east, north } = asked.box;
      expect(lon >= west && lon <= east && lat >= south && lat <= north).toBe(true);
    }
    expect(asked.cellSize).toBeCloseTo(((44 / 4) * 360) / WORLD);
    expect(cellsOf({ ...view, x: 521 }, SIZE, 4, 44)).toEqual(asked);
    // Few enough to be answered, also on a large screen.
    const { box, cellSize } = cellsOf({ x: 500, y: 500, zoom: 4 }, { width: 3_840, height: 400 }, 4, 44);
    expect(((box.east - box.west) / cellSize + 1) * ((box.north - box.south) / cellSize + 1)).toBeLessThan(10_000);
  });

  it('of the whole world reach its poles', () => {
    const whole = { x: 500, y: 500, zoom: 0.8 };
    const { box } = cellsOf(whole, { width: 800, height: 800 }, 0.7, 44);
    expect(box).toEqual({ west: -180, south: -90, east: 180, north: 90 });
  });

  it('count all that they hold, and are looked at by their boxes', () => {
    expect(clusters([cell(40), point('a', 8.2, 47.1)], 1).map(({ count, status }) => [count, status])).toEqual([
      [41, 'warning'],
    ]);
    expect(boxOf([cell(2), point('far', 20, 40)])).toEqual({ west: 8, south: 40, east: 20, north: 48 });
    expect(cornersOf([])).toEqual([]);
  });
});
