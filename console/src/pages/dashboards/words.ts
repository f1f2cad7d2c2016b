import { type Widget, type WidgetType, isWidgetType } from '../../lib/dashboard';
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

/** A widget's title, or else what it is. */
export function widgetTitle({ title, type, settings }: Pick<Widget, 'title' | 'type' | 'settings'>): string {
  if (title) return title;
  if (!isWidgetType(type)) return m.widget_unknown();
  const [key] = settings.keys ?? [];
  return key ? `${key.deviceName}: ${key.path || key.elementName}` : typeWord(type);
}

/** The titles of widgets by their id. Those that are called the same are told apart by a number, for who hears them. */
export function distinctTitles(
  widgets: readonly Pick<Widget, 'id' | 'title' | 'type' | 'settings'>[],
): Map<string, string> {
  const taken = new Map<string, number>();
  return new Map(
    widgets.map((widget) => {
      const title = widgetTitle(widget);
      const count = (taken.get(title) ?? 0) + 1;
      taken.set(title, count);
      return [widget.id, count === 1 ? title : `${title} (${count})`];
    }),
  );
}
