import { describe, expect, it } from 'vitest';
import {
  type Box,
  COLUMNS,
  boundTo,
  bounded,
  changed,
  isWhole,
  newWidget,
  roomFor,
  settled,
  stepped,
  widgetsOf,
} from './dashboard';

const at = (id: string, x: number, y: number, w = 4, h = 2) => ({ id, x, y, w, h });
const places = (widgets: readonly (Box & { id: string })[]) => widgets.map(({ id, x, y }) => `${id} ${x},${y}`);

describe('the grid of a dashboard', () => {
  it('has neither overlaps nor holes', () => {
    expect(places(settled([at('a', 0, 5), at('b', 0, 6), at('c', 4, 9)]))).toEqual(['a 0,0', 'c 4,0', 'b 0,2']);
  });

  it('gives the moved widget its place, and the others make room', () => {
    const widgets = [at('a', 0, 0), at('b', 4, 0), at('c', 0, 2)];
    expect(places(changed(widgets, 'c', { y: 0 }))).toEqual(['c 0,0', 'b 4,0', 'a 0,2']);
    expect(places(changed(widgets, 'a', { x: 4 }))).toEqual(['c 0,0', 'a 4,0', 'b 4,2']);
    expect(places(changed(widgets, 'a', { w: 99 }))).toEqual(['a 0,0', 'c 0,2', 'b 4,2']);
    for (const widget of changed(widgets, 'b', { x: -5, w: 0, h: 0 })) {
      expect(widget.x).toBeGreaterThanOrEqual(0);
      expect(widget.w).toBeGreaterThanOrEqual(1);
    }
  });

  it('is stepped through by keys: down leads past the widget below', () => {
    const widgets = [at('a', 0, 0), at('b', 0, 2, 4, 3), at('c', 4, 0)];
    expect(places(stepped(widgets, 'a', 0, 1))).toEqual(['b 0,0', 'c 4,0', 'a 0,3']);
    expect(places(stepped(widgets, 'c', 1, 0))).toEqual(['a 0,0', 'c 5,0', 'b 0,2']);
    // At the end there is nothing below.
    expect(places(stepped(widgets, 'b', 0, 1))).toEqual(places(settled(widgets)));
    expect(places(stepped(widgets, 'none', 1, 0))).toEqual(places(widgets));
  });

  it('finds room for a new one', () => {
    expect(roomFor([], { w: 6, h: 4 })).toEqual({ x: 0, y: 0, w: 6, h: 4 });
    expect(roomFor([at('a', 0, 0, 6, 4)], { w: 6, h: 2 })).toMatchObject({ x: 6, y: 0 });
    expect(roomFor([at('a', 0, 0, 8, 4)], { w: 6, h: 2 })).toMatchObject({ x: 0, y: 4 });
  });

  it('keeps boxes within its columns', () => {
    expect(bounded({ x: 11, y: -3, w: 5, h: 99 })).toEqual({ x: COLUMNS - 5, y: 0, w: 5, h: 12 });
  });
});

describe('dashboards as the server keeps them', () => {
  const read = (configuration: Record<string, unknown>) => widgetsOf({ name: null, options: {}, configuration });

  it('are read with all that other programs have put there', () => {
    const [one, two] = read({
      widgets: [
        { id: 'a', type: 'line', x: 0, y: 0, w: 6, h: 4, settings: { keys: [], theirs: 1 }, more: true },
        { type: 'their-own' },
        5,
        {},
      ],
    });
    expect(one).toMatchObject({ id: 'a', settings: { theirs: 1 }, more: true });
    expect(two).toMatchObject({ type: 'their-own', title: '', settings: {} });
    expect(read({ widgets: [{}, null] })).toEqual([]);
    expect(read({ widgets: 'none' })).toEqual([]);
    expect(read({})).toEqual([]);
  });
});

describe('dashboards that somebody else has written', () => {
  const read = (widgets: unknown[]) => widgetsOf({ name: null, options: {}, configuration: { widgets } });
  const settings = (raw: unknown, type = 'line') => read([{ type, settings: raw }])[0]?.settings;
  const key = { deviceId: 'd', deviceName: 'D', elementName: 'e', path: 'p' };

  it('give each widget an identifier of its own', () => {
    const ids = read([
      { type: 'map', id: 'a' },
      { type: 'text', id: 'a' },
      { type: 'line' },
      { type: 'map', id: 'widget-2' },
    ]).map(({ id, type }) => [id, type]);
    expect(new Set(ids.map(([id]) => id)).size).toBe(4);
    expect(ids).toContainEqual(['a', 'map']);
    expect(ids).toContainEqual(['widget-2', 'map']);
  });

  it('have the keys that are keys, each once', () => {
    expect(settings({ keys: 5 })).toEqual({});
    expect(settings([])).toEqual({});
    expect(settings({ keys: [null, {}, key, { ...key, unit: '°C' }, { ...key, path: 'q', deviceName: 7 }] })).toEqual({
      keys: [key, { ...key, path: 'q', deviceName: 'd' }],
    });
  });

  it('have the columns that are texts, each once', () => {
    expect(settings({ elementName: 'e', paths: 'temperature' }, 'table')).toEqual({ elementName: 'e' });
    expect(settings({ elementName: 5, paths: ['a', 'b', 'a', 3] }, 'table')).toEqual({ paths: ['a', 'b'] });
  });

  it('have scales with two ends, and words that are words', () => {
    expect(settings({ min: 'a', max: 40 }, 'gauge')).toEqual({ max: 40 });
    expect(settings({ min: 7, max: 7 }, 'gauge')).toEqual({});
    // There is nothing between this and the end that a gauge has otherwise.
    expect(settings({ min: 200 }, 'gauge')).toEqual({});
    expect(settings({ min: -5, max: 5 }, 'gauge')).toEqual({ min: -5, max: 5 });
    expect(settings({ text: {} }, 'text')).toEqual({});
  });

  it('have devices, figures and texts that are such', () => {
    const device = { id: 'd', name: 'D' };
    expect(settings({ device, figure: 'mean', payload: '1', label: 'site', isOnThis: true }, 'button')).toEqual({
      device,
      figure: 'mean',
      payload: '1',
      label: 'site',
      isOnThis: true,
    });
    const odd = { device: { id: 5, name: 'D' }, figure: 'median', payload: 1, label: {}, isOnThis: 'yes' };
    expect(settings(odd, 'button')).toEqual({});
  });

  it('have alarms of a severity, a state and a number that are such', () => {
    const known = { severity: 'warning', alarmState: 'unacknowledged', rows: 5, projectUuid: 'p' };
    expect(settings(known, 'alarms')).toEqual(known);
    expect(settings({ severity: 'high', alarmState: 'cleared', rows: 'many' }, 'alarms')).toEqual({});
    expect(settings({ rows: 1e9 }, 'alarms')).toEqual({ rows: 100 });
    expect(settings({ rows: 0.2 }, 'alarms')).toEqual({ rows: 1 });
  });

  it('keep what widgets of other programs have', () => {
    expect(settings({ keys: 5, text: {} }, 'their-own')).toEqual({ keys: 5, text: {} });
    expect(settings({ theirs: 1, isSplit: 'no' })).toEqual({ theirs: 1 });
  });
});

describe('widgets', () => {
  it('are whole when they have what they show', () => {
    const key = { deviceId: 'd', deviceName: 'D', elementName: 'e', path: 'p' };
    expect(isWhole('line', {})).toBe(false);
    expect(isWhole('line', { keys: [key] })).toBe(true);
    expect(isWhole('gauge', { keys: [key], min: 4, max: 4 })).toBe(false);
    expect(isWhole('gauge', { keys: [key], min: 0, max: 4 })).toBe(true);
    expect(isWhole('table', { elementName: 'e', paths: [] })).toBe(false);
    expect(isWhole('text', { text: '  ' })).toBe(false);
    expect(isWhole('map', {})).toBe(true);
    expect(isWhole('alarms', {})).toBe(true);
  });

  it('send, switch and listen with what they need', () => {
    const device = { id: 'd', name: 'D' };
    expect(isWhole('events', {})).toBe(false);
    expect(isWhole('events', { device })).toBe(true);
    expect(isWhole('switch', { device })).toBe(false);
    expect(isWhole('switch', { device, settingName: 'on' })).toBe(true);
    for (const payload of [undefined, '', 'null', '{']) {
      expect(isWhole('button', { device, elementName: 'e', ...(payload === undefined ? {} : { payload }) })).toBe(
        false,
      );
    }
    expect(isWhole('button', { device, elementName: 'e', payload: '{"on":true}' })).toBe(true);
    expect(isWhole('selection', {})).toBe(true);
    expect(isWhole('selection', { figure: 'mean' })).toBe(false);
  });

  it('show the device on whose page they are, where they are bound to it', () => {
    const self = { id: 'this', name: 'This one' };
    const key = { deviceId: 'd', deviceName: 'D', elementName: 'e', path: 'p' };
    const settings = { keys: [key], device: { id: 'd', name: 'D' } };
    expect(boundTo(settings, self)).toBe(settings);
    expect(boundTo({ ...settings, isOnThis: true }, self)).toEqual({
      keys: [{ ...key, deviceId: 'this', deviceName: 'This one' }],
      device: self,
      isOnThis: true,
    });
    expect(boundTo({ text: 'x', isOnThis: true }, self)).toEqual({ text: 'x', isOnThis: true });
    // Alarms of a project, say, become those of the device.
    expect(boundTo({ projectUuid: 'p', isOnThis: true }, self, 'alarms')).toMatchObject({ device: self });
  });

  it('are new where there is room', () => {
    const first = newWidget([], 'map', 'Map');
    expect(newWidget([first], 'status', 'Status')).toMatchObject({ x: 6, y: 0, type: 'status', title: 'Status' });
  });
});
