import { type Widget, type WidgetKey, type WidgetType, isWidgetType } from '../../lib/dashboard';
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
  const [key] = settings.keys ?? [];
  return key ? `${key.deviceName}: ${called(key)}` : typeWord(type);
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
