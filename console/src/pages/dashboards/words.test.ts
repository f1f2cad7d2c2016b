import { expect, it } from 'vitest';
import { distinctTitles, widgetTitle } from './words';

it('widgets of one title are told apart by a number', () => {
  const widget = (id: string, title: string) => ({ id, title, type: 'text', settings: {} });
  const titles = distinctTitles([
    widget('a', 'Cold room'),
    widget('b', 'Gate'),
    widget('c', 'Cold room'),
    widget('d', ''),
  ]);
  expect([...titles]).toEqual([
    ['a', 'Cold room'],
    ['b', 'Gate'],
    ['c', 'Cold room (2)'],
    ['d', 'Text'],
  ]);
});

it('widgets of a device are named after it and what they do there', () => {
  const device = { id: 'd', name: 'Fridge' };
  const title = (type: string, settings: object) => widgetTitle({ title: '', type, settings: { device, ...settings } });
  expect(title('button', { elementName: 'defrost' })).toBe('Fridge: defrost');
  expect(title('switch', { settingName: 'cooling' })).toBe('Fridge: cooling');
  expect(title('events', {})).toBe('Fridge: Events');
});
