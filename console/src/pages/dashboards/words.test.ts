import { expect, it } from 'vitest';
import { distinctTitles } from './words';

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
