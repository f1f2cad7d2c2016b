import type { Schemas } from '../api/client';
import type { AlarmSeverity } from './alarms';
import { readJson } from './json';
import { FIGURES, type Figure } from './selection';
import type { Key } from './series';

/** What a dashboard is made of, and how its widgets lie on their grid. */

export const COLUMNS = 12;
const HEIGHT_MAX = 12;
const ROWS_MAX = 200;

export const WIDGET_TYPES = [
  'line',
  'bar',
  'value',
  'gauge',
  'table',
  'selection',
  'map',
  'picture',
  'status',
  'alarms',
  'events',
  'button',
  'switch',
  'markdown',
  'text',
] as const;
export type WidgetType = (typeof WIDGET_TYPES)[number];

/** Which alarms a widget shows, where not all that are active: those that nobody has acknowledged, or active ones that somebody has. */
export const ALARM_STATES = ['unacknowledged', 'acknowledged'] as const;
export type AlarmState = (typeof ALARM_STATES)[number];
/** The severities that alarms can have at least. */
export const ALARM_SEVERITIES: readonly AlarmSeverity[] = ['info', 'warning', 'critical'];
/** Alarms that a widget shows, and at most. */
export const ALARM_ROWS = 10;
export const ALARM_ROWS_MAX = 100;

/** Where a widget lies, in cells. */
export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** A key of a device, and how it is told. */
export interface WidgetKey extends Key {
  deviceName: string;
  unit?: string;
}

/** What a widget shows; each type uses its own part of it. */
export interface Settings {
  keys?: WidgetKey[];
  isSplit?: boolean;
  /** The path of the time in payloads, where devices send later than they measure. */
  timePath?: string;
  min?: number;
  max?: number;
  elementName?: string;
  paths?: string[];
  text?: string;
  /** The device that is told something, or listened to. */
  device?: WidgetDevice;
  /** What a button sends, as JSON. */
  payload?: string;
  settingName?: string;
  /** Which figure over a selection. */
  figure?: Figure;
  /** The devices of a selection: those of a project, those with a label. */
  projectUuid?: string;
  label?: string;
  labelValue?: string;
  /** The least severity of alarms, which of them, and how many. */
  severity?: AlarmSeverity;
  alarmState?: AlarmState;
  rows?: number;
  /** A picture in Base64, and the devices that stand on it. */
  picture?: string;
  places?: WidgetPlace[];
  /** On the page of a device it shows that one instead of those that it names. */
  isOnThis?: boolean;
}

export interface WidgetDevice {
  id: string;
  name: string;
}

/** A device on a picture: how far from its left and its top, in percent. */
export interface WidgetPlace extends WidgetDevice {
  x: number;
  y: number;
}

/** Devices on one picture. */
export const PLACES_MAX = 20;

/** A widget. Its type may be one of another program: it is kept then, as all is that is not known here. */
export interface Widget extends Box {
  id: string;
  type: string;
  title: string;
  settings: Settings;
}

/** The scale of a gauge of which nothing else is said. */
export const SCALE = { min: 0, max: 100 } as const;

/** How large a new widget is. */
export const SIZES: Record<WidgetType, { w: number; h: number }> = {
  line: { w: 6, h: 4 },
  value: { w: 3, h: 2 },
  gauge: { w: 3, h: 3 },
  table: { w: 6, h: 4 },
  map: { w: 6, h: 4 },
  status: { w: 6, h: 2 },
  alarms: { w: 6, h: 4 },
  text: { w: 3, h: 2 },
  bar: { w: 6, h: 3 },
  selection: { w: 3, h: 2 },
  events: { w: 6, h: 4 },
  button: { w: 3, h: 2 },
  switch: { w: 3, h: 3 },
  markdown: { w: 6, h: 3 },
  picture: { w: 6, h: 5 },
};

/** The widgets of a dashboard as the server keeps it, on their grid. What is no widget is left out of sight. */
export function widgetsOf(dashboard: Schemas['Dashboard']): Widget[] {
  const { widgets } = dashboard.configuration;
  if (!Array.isArray(widgets)) return [];
  return settled(withOwnIds(widgets.flatMap(widgetOf)));
}

function widgetOf(raw: unknown): (Omit<Widget, 'id'> & { id?: unknown })[] {
  if (!isMembers(raw)) return [];
  const { type, title, x, y, w, h, settings } = raw;
  if (typeof type !== 'string') return [];
  const box = bounded({ x: whole(x, 0), y: whole(y, ROWS_MAX), w: whole(w, 4), h: whole(h, 3) });
  // What widgets of other programs have is theirs, and stays as it is.
  const theirs = isMembers(settings) ? (settings as Settings) : {};
  const known = isWidgetType(type) ? settingsOf(settings) : theirs;
  return [{ ...raw, ...box, type, title: typeof title === 'string' ? title : '', settings: known }];
}

/** The first of several widgets with one identifier keeps it; the others, and those that came without, get one that nobody has. */
function withOwnIds(widgets: readonly (Omit<Widget, 'id'> & { id?: unknown })[]): Widget[] {
  const given = new Set(widgets.map(({ id }) => id));
  const taken = new Set<string>();
  return widgets.map((widget, index) => {
    let id = widget.id;
    let number = index;
    while (typeof id !== 'string' || taken.has(id)) {
      const free = `widget-${number}`;
      id = given.has(free) ? undefined : free;
      number += 1;
    }
    taken.add(id);
    return { ...widget, id };
  });
}

export function isWidgetType(type: string): type is WidgetType {
  return WIDGET_TYPES.some((known) => known === type);
}

/** Settings as far as they are what a widget takes. Members that are not known here are kept. */
export function settingsOf(raw: unknown): Settings {
  if (!isMembers(raw)) return {};
  const { keys, isSplit, timePath, min, max, elementName, paths, text, device, figure, isOnThis, ...rest } = raw;
  const {
    payload,
    settingName,
    projectUuid,
    label,
    labelValue,
    picture,
    places,
    severity,
    alarmState,
    rows,
    ...others
  } = rest;
  return {
    ...others,
    ...(Array.isArray(keys) ? { keys: keysOf(keys) } : {}),
    ...(typeof isSplit === 'boolean' ? { isSplit } : {}),
    ...(typeof timePath === 'string' ? { timePath } : {}),
    ...scaleOf(min, max),
    ...(typeof elementName === 'string' ? { elementName } : {}),
    ...(Array.isArray(paths) ? { paths: [...new Set(paths.filter((path) => typeof path === 'string'))] } : {}),
    ...(typeof text === 'string' ? { text } : {}),
    ...(isDevice(device) ? { device } : {}),
    ...(FIGURES.some((known) => known === figure) ? { figure: figure as Figure } : {}),
    ...(typeof isOnThis === 'boolean' ? { isOnThis } : {}),
    ...textsOf({ payload, settingName, projectUuid, label, labelValue, picture }),
    ...(Array.isArray(places) ? { places: placesOf(places) } : {}),
    ...(ALARM_SEVERITIES.some((known) => known === severity) ? { severity: severity as AlarmSeverity } : {}),
    ...(ALARM_STATES.some((known) => known === alarmState) ? { alarmState: alarmState as AlarmState } : {}),
    ...(isFigure(rows) ? { rows: Math.min(Math.max(Math.round(rows), 1), ALARM_ROWS_MAX) } : {}),
  };
}

function isDevice(raw: unknown): raw is WidgetDevice {
  return isMembers(raw) && typeof raw.id === 'string' && typeof raw.name === 'string';
}

/** The places among these, each device once. */
function placesOf(raw: readonly unknown[]): WidgetPlace[] {
  const places = new Map<string, WidgetPlace>();
  for (const place of raw) {
    if (!isDevice(place) || places.size === PLACES_MAX) continue;
    const { id, name, x, y } = place as WidgetDevice & Record<'x' | 'y', unknown>;
    places.set(id, { id, name, x: percent(x), y: percent(y) });
  }
  return [...places.values()];
}

/** Returns a share that is one, of what is said to be one. */
export function percent(value: unknown): number {
  return isFigure(value) ? Math.min(Math.max(value, 0), 100) : 50;
}

/** Those of these members that are texts. */
function textsOf<T extends string>(raw: Record<T, unknown>): Partial<Record<T, string>> {
  const texts = Object.entries(raw).filter(([, value]) => typeof value === 'string');
  return Object.fromEntries(texts) as Partial<Record<T, string>>;
}

/** Returns what a widget shows on the page of a device: of that one, where it is bound to it. */
export function boundTo(settings: Settings, { id, name }: WidgetDevice, type?: string): Settings {
  if (!settings.isOnThis) return settings;
  const { keys, device } = settings;
  return {
    ...settings,
    ...(keys ? { keys: keys.map((key) => ({ ...key, deviceId: id, deviceName: name })) } : {}),
    // Alarms of all devices become those of this one.
    ...(device || type === 'alarms' ? { device: { id, name } } : {}),
  };
}

/** Types whose widgets can be bound to the device on whose page they are shown. */
export function isOfDevices(type: WidgetType): boolean {
  return ['line', 'bar', 'value', 'gauge', 'alarms', 'events', 'button', 'switch'].includes(type);
}

/** The keys among these, each once. */
function keysOf(raw: readonly unknown[]): WidgetKey[] {
  const keys = new Map<string, WidgetKey>();
  for (const key of raw) {
    if (!isMembers(key)) continue;
    const { deviceId, deviceName, elementName, path, unit, ...others } = key;
    if (typeof deviceId !== 'string' || typeof elementName !== 'string' || typeof path !== 'string') continue;
    const name = JSON.stringify([deviceId, elementName, path]);
    if (keys.has(name)) continue;
    keys.set(name, {
      ...others,
      deviceId,
      deviceName: typeof deviceName === 'string' ? deviceName : deviceId,
      elementName,
      path,
      ...(typeof unit === 'string' ? { unit } : {}),
    });
  }
  return [...keys.values()];
}

/** The ends of a scale, unless they leave none. */
function scaleOf(min: unknown, max: unknown): Pick<Settings, 'min' | 'max'> {
  const low = isFigure(min) ? min : SCALE.min;
  const high = isFigure(max) ? max : SCALE.max;
  if (high <= low) return {};
  return { ...(isFigure(min) ? { min } : {}), ...(isFigure(max) ? { max } : {}) };
}

function isFigure(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

function isMembers(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function whole(value: unknown, fallback: number): number {
  return isFigure(value) ? Math.round(value) : fallback;
}

/** A box that lies on the grid. */
export function bounded({ x, y, w, h }: Box): Box {
  const width = Math.min(Math.max(w, 1), COLUMNS);
  return {
    x: Math.min(Math.max(x, 0), COLUMNS - width),
    y: Math.min(Math.max(y, 0), ROWS_MAX),
    w: width,
    h: Math.min(Math.max(h, 1), HEIGHT_MAX),
  };
}

function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}

/**
 * Widgets without overlap and without holes above them, in the order in which they are read. The one that was moved takes its place,
 * others make room.
 */
export function settled<T extends Box & { id: string }>(widgets: readonly T[], movedId?: string): T[] {
  const rank = (widget: T) => widget.y - (widget.id === movedId ? 0.5 : 0);
  const order = [...widgets].sort((a, b) => rank(a) - rank(b) || a.x - b.x);
  const placed: T[] = [];
  for (const widget of order) {
    const isFree = (y: number) => !placed.some((other) => overlap({ ...widget, y }, other));
    let { y } = widget;
    while (!isFree(y)) y += 1;
    while (y > 0 && isFree(y - 1)) y -= 1;
    placed.push(y === widget.y ? widget : { ...widget, y });
  }
  return placed.sort((a, b) => a.y - b.y || a.x - b.x);
}

/** One widget elsewhere, or of another size, and the others where that leaves them. */
export function changed<T extends Box & { id: string }>(widgets: readonly T[], id: string, box: Partial<Box>): T[] {
  const moved = widgets.map((widget) => (widget.id === id ? { ...widget, ...bounded({ ...widget, ...box }) } : widget));
  return settled(moved, id);
}

/** One widget a step further, as the arrow keys do. A step down leads past the widget below. */
export function stepped<T extends Box & { id: string }>(
  widgets: readonly T[],
  id: string,
  dx: number,
  dy: number,
): T[] {
  const widget = widgets.find((one) => one.id === id);
  if (!widget) return [...widgets];
  if (dy <= 0) return changed(widgets, id, { x: widget.x + dx, y: widget.y + dy });
  for (let down = 1; down <= HEIGHT_MAX; down += 1) {
    const next = changed(widgets, id, { x: widget.x + dx, y: widget.y + down });
    if (next.find((one) => one.id === id)?.y !== widget.y) return next;
  }
  return settled(widgets);
}

/** Room for a new widget: the first that is large enough. */
export function roomFor(widgets: readonly Box[], { w, h }: { w: number; h: number }): Box {
  for (let y = 0; y < ROWS_MAX; y += 1) {
    for (let x = 0; x + w <= COLUMNS; x += 1) {
      const box = { x, y, w, h };
      if (!widgets.some((other) => overlap(box, other))) return box;
    }
  }
  return { x: 0, y: ROWS_MAX, w, h };
}

/** A widget of this type with nothing set, where there is room for it. */
export function newWidget(
  widgets: readonly Widget[],
  type: WidgetType,
  title: string,
  settings: Settings = {},
): Widget {
  return { id: crypto.randomUUID(), type, title, settings, ...roomFor(widgets, SIZES[type]) };
}

/** Whether a widget has what it needs. */
export function isWhole(type: WidgetType, settings: Settings): boolean {
  const { keys, elementName, paths, text, min, max, device, payload, settingName, figure } = settings;
  switch (type) {
    case 'line':
    case 'bar':
    case 'value':
      return (keys ?? []).length > 0;
    case 'gauge':
      return (keys ?? []).length > 0 && typeof min === 'number' && typeof max === 'number' && max > min;
    case 'table':
      return Boolean(elementName) && (paths ?? []).length > 0;
    case 'selection':
      return (figure ?? 'count') === 'count' || (keys ?? []).length > 0;
    case 'picture':
      return Boolean(settings.picture);
    case 'events':
      return device !== undefined;
    case 'button':
      return device !== undefined && Boolean(elementName) && readJson(payload ?? '').isGood;
    case 'switch':
      return device !== undefined && Boolean(settingName);
    case 'text':
    case 'markdown':
      return (text ?? '').trim() !== '';
    case 'map':
    case 'status':
    case 'alarms':
      return true;
  }
}
