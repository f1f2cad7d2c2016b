import { geoGraticule10, geoMercator, geoPath } from 'd3-geo';
import type { Feature, FeatureCollection, LineString, MultiLineString, Polygon } from 'geojson';
import { feature, mesh } from 'topojson-client';
import type { GeometryCollection, Topology } from 'topojson-specification';
import { arrived } from '../../api/failure';
import { WORLD } from '../../lib/map';
import { Turns } from '../../lib/turns';

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
  const coming =
    detail === 'coarse' ? import('world-atlas/countries-110m.json') : import('world-atlas/countries-50m.json');
  return (await arrived<{ default: Topology }>(coming)).default;
}

/** A world in detail takes long to draw: piece by piece, between which the page may paint and listen. */
async function draw(atlas: Topology): Promise<Ground> {
  const projection = geoMercator()
    .scale(WORLD / (2 * Math.PI))
    .translate([WORLD / 2, WORLD / 2]);
  const path = geoPath(projection).digits(DIGITS);
  const turns = new Turns();
  const { land, countries } = atlas.objects;
  if (!land || !countries) return { land: '', borders: '', graticule: '' };
  const drawn = async (pieces: Iterable<Polygon | LineString>): Promise<string> => {
    const paths: string[] = [];
    for (const piece of pieces) {
      paths.push(path(piece) ?? '');
      if (turns.isOver) await turns.next();
    }
    return paths.join('');
  };
  return {
    land: await drawn(polygonsOf(feature(atlas, land))),
    borders: await drawn(linesOf(mesh(atlas, countries as GeometryCollection, (a, b) => a !== b))),
    graticule: await drawn(linesOf(geoGraticule10())),
  };
}

function* polygonsOf(shape: Feature | FeatureCollection): Generator<Polygon> {
  const features = shape.type === 'Feature' ? [shape] : shape.features;
  for (const { geometry } of features) {
    if (geometry.type === 'Polygon') yield geometry;
    else if (geometry.type === 'MultiPolygon')
      for (const coordinates of geometry.coordinates) yield { type: 'Polygon', coordinates };
  }
}

function* linesOf({ coordinates }: MultiLineString): Generator<LineString> {
  for (const line of coordinates) yield { type: 'LineString', coordinates: line };
}
