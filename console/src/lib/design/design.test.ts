import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { check } from './check';
import { copy, paste, readClip, writeClip } from './clip';
import { changesOf } from './diff';
import { SHAPES, TYPES } from './elements';
import { begin, commit, redo, undo } from './history';
import { LABEL_HEIGHT, type Line, labelMiddle, labelShifts } from './labels';
import { arranged, placeBeside, positions, sizeOf } from './layout';
import { merge } from './merge';
import * as model from './model';
import { type Design, type Element, elementsOf, withElements } from './model';
import { placeOf } from './places';
import { TEMPLATES, templateElements } from './templates';
import { follow } from './trace';
import { FRIDGE, chance, design } from './fixture';

/** A change that the canvas could make, by chance. */
function changed(now: Design, next: (below: number) => number): Design {
  const names = model.namesOf(now);
  const any = (): string => names[next(names.length)] ?? '';
  const links = model.allLinks(now);
  const link = links[next(Math.max(links.length, 1))];
  switch (next(9)) {
    case 0:
    case 1:
      return model.addElement(now, TYPES[next(TYPES.length)] ?? 'storage', { x: next(500), y: next(500) }).design;
    case 2:
      return model.renameElement(now, any(), `name ${next(9)}`);
    case 3:
      return names.length > 6 ? model.removeElements(now, [any()]) : now;
    case 4:
      return link ? model.disconnect(now, [link]) : now;
    case 5:
      return link ? model.moveLink(now, link, next(3) - 1) : now;
    case 6:
      return names.length < 14 ? paste(now, copy(now, [any(), any()]), { x: 9, y: 9 }).design : now;
    case 7:
      return model.setPositions(now, new Map([[any(), { x: next(900), y: next(900) }]]));
    default: {
      const [from, to] = [any(), any()];
      const trigger = model.shapeIn(now, from)?.triggers[0] ?? '';
      const ability = model.shapeIn(now, to)?.abilities[0]?.name ?? '';
      return model.connect(now, { from, trigger, to, ability })?.design ?? now;
    }
  }
}

describe('whatever is done on the canvas', () => {
  it.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'leaves a design that can be shown, without dangling links and without cycles (%i)',
    (seed) => {
      const next = chance(seed);
      let history = begin(FRIDGE);
      const seen = [FRIDGE];
      for (let step = 0; step < 120; step += 1) {
        const now = changed(history.now, next);
        if (now !== history.now) {
          history = commit(history, now);
          seen.push(now);
        }
        const read = model.readDesign(JSON.parse(model.writeDesign(now)));
        expect(read.isGood && model.equal(read.design, now)).toBe(true);
        for (const { element, link } of model.allLinks(now)) {
          expect(model.elementOf(now, link.element), `${element} leads to ${link.element}`).toBeDefined();
          expect(model.leadsTo(now, link.element, element)).toBe(false);
        }
      }
      // All of it can be taken back, and done again.
      for (let index = seen.length - 1; index > Math.max(0, seen.length - 100); index -= 1) {
        expect(history.now).toBe(seen[index]);
        history = undo(history);
      }
      for (let index = Math.max(1, seen.length - 99); index < seen.length; index += 1) {
        history = redo(history);
        expect(history.now).toBe(seen[index]);
      }
    },
  );

  it.each([11, 12, 13])(
    'is merged with what somebody else did, and nothing of either is lost without a question (%i)',
    (seed) => {
      const next = chance(seed);
      const [base] = [FRIDGE];
      let [mine, theirs] = [base, base];
      for (let step = 0; step < 6; step += 1) {
        mine = changed(mine, next);
        theirs = changed(theirs, next);
      }
      const merged = merge(base, mine, theirs, () => 'theirs');
      const asked = new Set(merged.conflicts.map(({ element }) => element));
      for (const { element, kind } of changesOf(base, mine)) {
        if (element === null || asked.has(element) || kind === 'moved') continue;
        expect(model.elementOf(merged.design, element)).toEqual(model.elementOf(mine, element));
      }
      for (const { element, kind } of changesOf(base, theirs)) {
        if (element === null || kind === 'moved') continue;
        expect(model.elementOf(merged.design, element)).toEqual(model.elementOf(theirs, element));
      }
      expect(model.equal(merge(base, mine, base, () => 'theirs').design, mine)).toBe(true);
      expect(model.equal(elementsOf(merge(base, base, theirs, () => 'mine').design), elementsOf(theirs))).toBe(true);
    },
  );
});

describe('a design', () => {
  it('renames an element with links to it and expressions that read it', () => {
    const next = model.renameElement(model.renameElement(FRIDGE, 'limit', 'upper limit'), 'values', 'climate');
    const elements = elementsOf(next);
    expect(elements.warm?.properties?.expression).toBe(
      "payload.temp > settings['upper limit'] || last.climate.temp > 20",
    );
    expect(elements.tell?.properties?.message).toBe("limit {{ settings['upper limit'] }}, not settings.limit");
    expect(elements.reading?.triggers?.eventReceived?.[0]?.element).toBe('climate');
    const back = model.renameElement(model.renameElement(next, 'climate', 'values'), 'upper limit', 'limit');
    expect(back).toEqual(FRIDGE);
    expect(model.renameElement(FRIDGE, 'limit', 'warm')).toBe(FRIDGE);
  });

  it('keeps members that the console does not know, wherever they stand', () => {
    const odd = withElements(
      {
        ...FRIDGE,
        planes: { ...FRIDGE.planes, edge: { a: 1 }, cloud: { ...(FRIDGE.planes.cloud as object), notes: ['x'] } },
      },
      Object.entries(elementsOf(FRIDGE)).map(([name, element]) => [name, { ...element, colour: 'red' } as Element]),
    );
    let next = model.renameElement(odd, 'values', 'log');
    next = model.setProperty(next, 'log', 'retentionDays', 30);
    next = model.removeElements(next, ['tell']);
    next = model.connect(next, { from: 'warm', trigger: 'false', to: 'log', ability: 'store' })?.design ?? next;
    expect(next.planes.edge).toEqual({ a: 1 });
    expect((next.planes.cloud as { notes: unknown }).notes).toEqual(['x']);
    expect(Object.values(elementsOf(next)).every((element) => (element as { colour?: string }).colour === 'red')).toBe(
      true,
    );
  });

  it('takes links only where they fit', () => {
    const fits = (from: string, trigger: string, to: string, ability: string): boolean =>
      model.fits(FRIDGE, { from, trigger, to, ability });
    expect(fits('warm', 'false', 'values', 'store')).toBe(true);
    expect(fits('warm', 'maybe', 'values', 'store')).toBe(false);
    expect(fits('warm', 'false', 'values', 'send')).toBe(false);
    expect(fits('health', 'done', 'warm', 'evaluate'), 'a cycle').toBe(false);
    expect(fits('warm', 'false', 'warm', 'evaluate'), 'itself').toBe(false);
    expect(fits('reading', 'eventReceived', 'values', 'store'), 'twice').toBe(false);
    expect(fits('warm', 'false', 'reading', 'store'), 'an event has no abilities').toBe(false);
  });

  it('goes over names that are names of every object', () => {
    const next = model.renameElement(FRIDGE, 'values', '__proto__');
    expect(model.namesOf(next)).toContain('__proto__');
    expect(model.elementOf(next, 'toString')).toBeUndefined();
    expect(model.addElement(next, 'storage', { x: 0, y: 0 }).name).toBe('values');
    expect(JSON.parse(model.writeDesign(next)).planes.cloud.elements).toHaveProperty(['__proto__']);
  });

  it('is copied with the links and expressions within, and pasted under free names', () => {
    const clip = readClip(writeClip(copy(FRIDGE, ['warm', 'limit', 'health'])));
    const { design: next, names } = paste(FRIDGE, clip ?? { elements: [] }, { x: 32, y: 32 });
    expect(names).toEqual(['limit2', 'warm2', 'health2']);
    const warm = model.elementOf(next, 'warm2');
    expect(warm?.properties?.expression).toBe('payload.temp > settings.limit2 || last.values.temp > 20');
    expect(warm?.triggers?.true?.[0]?.element).toBe('health2');
    expect(model.removeElements(next, names)).toEqual(FRIDGE);
    expect(readClip('no clip')).toBeNull();
    expect(readClip('{"elements": {"a": 1}}')).toBeNull();
  });

  it('that cannot be shown says where', () => {
    const read = (value: unknown) => model.readDesign(value);
    expect(read([])).toEqual({ isGood: false, path: [], needed: 'object' });
    const odd = {
      name: 'x',
      planes: { cloud: { elements: { a: { type: 'storage', triggers: { stored: [{ ability: 'x' }] } } } } },
    };
    expect(read(odd)).toEqual({
      isGood: false,
      path: ['planes', 'cloud', 'elements', 'a', 'triggers', 'stored', 0, 'element'],
      needed: 'text',
    });
  });

  /** Each element that lies over another one. */
  function overlaps(made: Design): string[] {
    const places = [...arranged(made)].map(([name, at]) => ({
      name,
      at,
      size: sizeOf(elementsOf(made)[name] as Element),
    }));
    return places.flatMap((one, index) =>
      places
        .slice(index + 1)
        .filter(
          (other) =>
            Math.abs(one.at.x - other.at.x) < one.size.width &&
            one.at.y + one.size.height > other.at.y &&
            other.at.y + other.size.height > one.at.y,
        )
        .map((other) => `${one.name} and ${other.name}`),
    );
  }

  it('of the templates has no fault that can be seen, and stands without overlaps', () => {
    const words = { upperLimit: 'Limit', isTooHigh: 'is high', isTooWarm: 'is warm', doorOpen: 'open' };
    for (const name of TEMPLATES) {
      const made = design(templateElements(name, words));
      expect(check(made), name).toEqual([]);
      expect(overlaps(made), name).toEqual([]);
    }
  });

  it('of hundreds of elements stands from left to right without overlaps, whatever is linked with what', () => {
    const names = Array.from({ length: 400 }, (_, index) => `element ${index}`);
    const linked = (to: (index: number) => number[]): Design => {
      const link = (index: number): object => ({ element: names[index] ?? '', ability: 'evaluate' });
      const entries = names.map((name, index) => [
        name,
        {
          type: 'condition',
          triggers: {
            true: to(index)
              .filter((place) => place < names.length)
              .map(link),
          },
        },
      ]);
      return design(Object.fromEntries(entries) as Record<string, Element>);
    };
    const shapes = {
      chain: linked((index) => [index + 1]),
      chains: linked((index) => (index % 5 < 4 ? [index + 1] : [])),
      star: linked((index) => (index === 0 ? names.map((_, place) => place).slice(1) : [])),
      tree: linked((index) => [2 * index + 1, 2 * index + 2]),
      mesh: linked((index) => [index + 1, index + 7, index + 30]),
    };
    for (const [shape, made] of Object.entries(shapes)) {
      const places = arranged(made);
      expect(places.size, shape).toBe(400);
      expect(overlaps(made), shape).toEqual([]);
      for (const { element, link } of model.allLinks(made)) {
        expect(places.get(element)?.x ?? 0, shape).toBeLessThan(places.get(link.element)?.x ?? 0);
      }
    }
    // Also what leads in a circle, which the server refuses, has its place.
    const circle = linked((index) => [(index + 1) % names.length]);
    expect(arranged(circle).size).toBe(400);
    expect(overlaps(circle)).toEqual([]);
  });

  it('keeps the labels of links between two elements apart, whatever their order', () => {
    const lines = [
      { between: 'a b', rows: 1 },
      { between: 'a b', rows: 0 },
      { between: 'a c', rows: 0 },
      { between: 'a b', rows: 1 },
    ];
    const shifts = labelShifts(lines);
    expect(shifts[2]).toBe(0);
    const at = (place: number): number => labelMiddle(lines[place] as Line) + (shifts[place] ?? 0);
    const heights = [0, 1, 3].map(at).sort((a, b) => a - b);
    for (const [index, height] of heights.slice(1).entries())
      expect(height - (heights[index] ?? 0)).toBeGreaterThanOrEqual(LABEL_HEIGHT);
    expect(Math.min(at(0), at(3))).toBeGreaterThan(at(1));
  });

  it('takes a place beyond all bounds for none', () => {
    const at = (x: unknown): unknown => model.positionOf({ type: 'storage', position: { x, y: 0 } });
    expect(at(-model.POSITION_MAX)).toEqual({ x: -model.POSITION_MAX, y: 0 });
    for (const far of [1e300, -Infinity, NaN, model.POSITION_MAX + 1, '5']) expect(at(far)).toBeUndefined();
  });

  it('puts what comes without a place below what has one, and new elements beside the chosen one', () => {
    const placed = model.setPositions(FRIDGE, positions(FRIDGE));
    const more = withElements(placed, [...Object.entries(elementsOf(placed)), ['extra', { type: 'storage' }]]);
    const at = positions(more);
    const lowest = Math.max(...model.namesOf(placed).map((name) => at.get(name)?.y ?? 0));
    expect(at.get('extra')?.y).toBeGreaterThan(lowest);
    expect(at.get('reading')).toEqual(positions(placed).get('reading'));
    const beside = placeBeside(placed, 'reading');
    expect(beside.x).toBeGreaterThan(at.get('reading')?.x ?? 0);
  });
});

describe('the table of elements', () => {
  const guide = readFileSync(new URL('../../../../docs/design-language.md', import.meta.url), 'utf8');
  const rows = guide.split('## Element types')[1]?.split('\n\n')[1]?.split('\n').slice(2) ?? [];

  it('is that of the documentation', () => {
    const words = (cell = ''): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, word]) => word ?? '');
    const told = rows.map((row) => {
      const [, type, properties, abilities, triggers] = row.split('|');
      return {
        type: words(type)[0],
        properties: words(properties).sort(),
        required: [...(properties ?? '').matchAll(/`(\w+)` \(required\)/g)].map(([, name]) => name).sort(),
        abilities: words(abilities).sort(),
        triggers: words(triggers).sort(),
      };
    });
    const known = Object.values(SHAPES).map(({ type, properties, abilities, triggers }) => ({
      type,
      properties: properties.map(({ name }) => name).sort(),
      required: properties
        .filter(({ isRequired }) => isRequired)
        .map(({ name }) => name)
        .sort(),
      abilities: abilities
        .map(({ name, arguments: given }) => (given.length > 0 ? `${name}(${given.join(', ')})` : name))
        .sort(),
      triggers: [...triggers].sort(),
    }));
    const byType = (left: { type?: string }, right: { type?: string }): number =>
      String(left.type).localeCompare(String(right.type));
    expect(known.sort(byType)).toEqual(told.sort(byType));
  });
});

describe('faults', () => {
  it('of the server are put where they belong, whatever names have in them', () => {
    const odd = design({ 'a.b': { type: 'storage' }, a: { type: 'http' }, 'a.b.c': { type: 'condition' } });
    const place = (rest: string) => placeOf(odd, `planes.cloud.elements.${rest}`);
    expect(place('a.b.properties.retentionDays')).toMatchObject({ element: 'a.b', property: 'retentionDays' });
    expect(place('a.b.c.properties.expression')).toMatchObject({ element: 'a.b.c', property: 'expression' });
    expect(place('a.properties.headers.x.y').path.slice(-2)).toEqual(['headers', 'x.y']);
    expect(place('a.b.triggers.stored[1].arguments.value')).toMatchObject({
      link: { element: 'a.b', trigger: 'stored', index: 1 },
      argument: 'value',
    });
    expect(placeOf(odd, 'name')).toEqual({ path: ['name'] });
  });

  it('that the console sees have the paths of the server', () => {
    const wrong = design({
      a: { type: 'condition', triggers: { true: [{ element: 'gone', ability: 'x' }], maybe: [] } },
      b: { type: 'window', properties: { size: 0, minutes: 1, aggregate: 'median' } },
      c: { type: 'strange' },
      d: {
        type: 'transform',
        properties: { expression: '(' },
        triggers: { result: [{ element: 'e', ability: 'evaluate' }] },
      },
      e: {
        type: 'transform',
        properties: { expression: '1' },
        triggers: { result: [{ element: 'd', ability: 'nothing', arguments: {} }] },
      },
    });
    const fields = check(wrong).map(({ field, code }) => `${field.replace('planes.cloud.elements.', '')} ${code}`);
    expect(fields).toEqual(
      expect.arrayContaining([
        'a.properties.expression required',
        'a.triggers.true[0].element unknown-element',
        'a.triggers.maybe unknown-trigger',
        'b.properties.size whole',
        'b.properties.minutes one-of-two',
        'b.properties.aggregate choice',
        'c.type unknown-type',
        'd.properties.expression unclosed',
        'd.triggers.result[0].element cycle',
        'e.triggers.result[0].ability unknown-ability',
      ]),
    );
    expect(check(FRIDGE)).toEqual([]);
  });
});

describe('a dry run', () => {
  it('is led along the links in the order in which values flowed', () => {
    const step = (element: string, ability: string | undefined, trigger: string | undefined, error?: string) => ({
      element,
      received: 1,
      notes: [],
      ...(ability ? { ability } : {}),
      ...(trigger ? { produced: { trigger, value: 1 } } : {}),
      ...(error ? { error } : {}),
    });
    const steps = [
      step('reading', undefined, 'eventReceived'),
      step('values', 'store', 'stored'),
      step('warm', 'evaluate', 'true'),
      step('health', 'setStatus', undefined, 'no such status'),
    ];
    const walks = follow(FRIDGE, steps);
    expect(walks.map(({ before }) => before)).toEqual([null, 0, 0, 2]);
    expect(walks[3]?.link).toEqual({ element: 'warm', trigger: 'true', index: 0 });
    expect(walks[3]?.depth).toBe(2);
    // Of another design no more is told than is known.
    const other = follow(model.removeElements(FRIDGE, ['values']), steps);
    expect(other).toHaveLength(4);
    expect(other[1]?.link).toBeNull();
  });
});
