import { geoMercator, geoPath } from 'd3-geo';
import { feature } from 'topojson-client';
import { afterEach, describe, expect, it, vi } from 'vitest';
import atlas from 'world-atlas/countries-110m.json';
import { WORLD } from '../../lib/map';
import { groundOf } from './ground';

afterEach(() => vi.restoreAllMocks());

describe('the ground of the map', () => {
  it('is drawn piece by piece, and others have their turns in between', async () => {
    let now = 0;
    // A clock by which each piece takes long.
    vi.spyOn(performance, 'now').mockImplementation(() => (now += 10));
    let turns = 0;
    let isDrawn = false;
    const drawing = groundOf('coarse').then((ground) => {
      isDrawn = true;
      return ground;
    });
    while (!isDrawn) {
      await new Promise((resolve) => setTimeout(resolve));
      turns += 1;
    }
    expect(turns).toBeGreaterThan(50);
    const projection = geoMercator()
      .scale(WORLD / (2 * Math.PI))
      .translate([WORLD / 2, WORLD / 2]);
    const { land } = atlas.objects;
    expect((await drawing).land).toBe(land && geoPath(projection).digits(3)(feature(atlas, land)));
  });
});
