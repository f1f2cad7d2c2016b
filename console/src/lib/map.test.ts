import { describe, expect, it } from 'vitest';
import {
  type MapPoint,
  WORLD,
  ZOOM_MAX,
  clusters,
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
