import { geoGraticule10, geoMercator, geoPath } from 'd3-geo';
import { feature, mesh } from 'topojson-client';
import type { GeometryCollection, Topology } from 'topojson-specification';
import { WORLD } from '../../lib/map';

/** What lies under the marks, as paths in units of the world. */
export interface Ground {
  land: string;
  borders: string;
  graticule: string;
}

export type Detail = 'coarse' | 'fine';

/** Digits behind the point: some forty metres. */
const DIGITS = 3;
const read = new Map<Detail, Promise<Ground>>();

/** The ground in this detail, fetched once. */
export function groundOf(detail: Detail): Promise<Ground> {
  const known = read.get(detail);
  if (known) return known;
  const drawing = atlasOf(detail).then(draw);
  read.set(detail, drawing);
  // Who has lost the network may ask again.
  drawing.catch(() => read.delete(detail));
  return drawing;
}

async function atlasOf(detail: Detail): Promise<Topology> {
  const atlas =
    detail === 'coarse'
      ? await import('world-atlas/countries-110m.json')
      : await import('world-atlas/countries-50m.json');
  return atlas.default;
}

function draw(atlas: Topology): Ground {
  const projection = geoMercator()
    .scale(WORLD / (2 * Math.PI))
    .translate([WORLD / 2, WORLD / 2]);
  const path = geoPath(projection).digits(DIGITS);
  const { land, countries } = atlas.objects;
  if (!land || !countries) return { land: '', borders: '', graticule: '' };
  const inner = mesh(atlas, countries as GeometryCollection, (a, b) => a !== b);
  return {
    land: path(feature(atlas, land)) ?? '',
    borders: path(inner) ?? '',
    graticule: path(geoGraticule10()) ?? '',
  };
}
