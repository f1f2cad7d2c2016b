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
