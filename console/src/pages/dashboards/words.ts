import { type AlarmState, type Widget, type WidgetKey, type WidgetType, isWidgetType } from '../../lib/dashboard';
import type { Figure } from '../../lib/selection';
import { m } from '../../paraglide/messages';

export function typeWord(type: WidgetType): string {
  switch (type) {
    case 'line':
      return m.widget_line();
    case 'value':
      return m.widget_value();
    case 'gauge':
      return m.widget_gauge();
    case 'table':
      return m.widget_table();
    case 'map':
      return m.widget_map();
    case 'status':
      return m.widget_status();
    case 'alarms':
      return m.widget_alarms();
    case 'bar':
      return m.widget_bar();
    case 'selection':
      return m.widget_selection();
    case 'picture':
      return m.widget_picture();
    case 'events':
      return m.widget_events();
    case 'button':
      return m.widget_button();
    case 'switch':
      return m.widget_switch();
    case 'markdown':
      return m.widget_markdown();
    case 'text':
      return m.widget_text();
  }
}

/** What a key is called where its design says nothing. */
const named = (key: WidgetKey): string => key.path || key.elementName;

/** A widget's title, or else what it is. `called` tells what a key is called. */
export function widgetTitle(
  { title, type, settings }: Pick<Widget, 'title' | 'type' | 'settings'>,
  called: (key: WidgetKey) => string = named,
): string {
  if (title) return title;
  if (!isWidgetType(type)) return m.widget_unknown();
  if (type === 'selection') return selectionTitle(settings);
  const { device, settingName, elementName } = settings;
  if (device && type === 'alarms') return `${device.name}: ${m.widget_alarms()}`;
  if (device && type === 'events') return `${device.name}: ${m.tab_events()}`;
  if (device && (type === 'button' || type === 'switch')) return `${device.name}: ${settingName ?? elementName ?? ''}`;
  const [key] = settings.keys ?? [];
  return key ? `${key.deviceName}: ${called(key)}` : typeWord(type);
}

export function alarmStatesWord(state: AlarmState): string {
  switch (state) {
    case 'unacknowledged':
      return m.widget_alarms_unacknowledged();
    case 'acknowledged':
      return m.widget_alarms_acknowledged();
  }
}

export function figureWord(figure: Figure): string {
  switch (figure) {
    case 'count':
      return m.selection_count();
    case 'mean':
      return m.selection_mean();
    case 'highest':
      return m.selection_highest();
    case 'lowest':
      return m.selection_lowest();
  }
}

function selectionTitle({ figure = 'count', keys }: Widget['settings']): string {
  const [key] = keys ?? [];
  return figure === 'count' || !key ? figureWord(figure) : `${figureWord(figure)}: ${key.path || key.elementName}`;
}

/** The titles of widgets by their id. Those that are called the same are told apart by a number, for who hears them. */
export function distinctTitles(
  widgets: readonly Pick<Widget, 'id' | 'title' | 'type' | 'settings'>[],
  called: (key: WidgetKey) => string = named,
): Map<string, string> {
  const taken = new Map<string, number>();
  return new Map(
    widgets.map((widget) => {
      const title = widgetTitle(widget, called);
      const count = (taken.get(title) ?? 0) + 1;
      taken.set(title, count);
      return [widget.id, count === 1 ? title : `${title} (${count})`];
    }),
  );
}
