import { describe, expect, it } from 'vitest';
import type { View, ViewInput } from '../api/views';
import { carryOver, localViews } from './localViews';

const MOST = 3;

function storageOf(list: unknown): Storage {
  const items = new Map([['filters:ana', typeof list === 'string' ? list : JSON.stringify(list)]]);
  return {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => void items.set(key, value),
    removeItem: (key) => void items.delete(key),
    clear: () => items.clear(),
    key: () => null,
    length: items.size,
  };
}

function viewOf({ name, query }: ViewInput): View {
  return { id: name, name, query, organizationId: null, createdAt: '', updatedAt: '' };
}

const create = (view: ViewInput): Promise<View> => Promise.resolve(viewOf(view));

describe('views that a browser has', () => {
  it('are carried over once, and forgotten here', async () => {
    const storage = storageOf([
      { name: ' warm ', search: 'status=critical' },
      { name: 'cold', search: 'q=a b' },
    ]);
    const views = await carryOver('ana', [], MOST, create, storage);
    expect(views.map(({ name, query }) => [name, query])).toEqual([
      ['cold', 'q=a+b'],
      ['warm', 'status=critical'],
    ]);
    expect(storage.getItem('filters:ana')).toBeNull();
    expect(await carryOver('ana', views, MOST, create, storage)).toEqual(views);
  });

  it('are not made twice, and get another name where theirs is taken', async () => {
    const there = [viewOf({ name: 'a', query: 'q=1' }), viewOf({ name: 'b', query: 'q=2' })];
    const storage = storageOf([
      { name: 'a', search: 'q=1' },
      { name: 'b', search: 'q=other' },
    ]);
    const views = await carryOver('ana', there, MOST, create, storage);
    expect(views.map(({ name }) => name)).toEqual(['a', 'b', 'b (2)']);
  });

  it('stay here as long as there is no room, or the server does not take them', async () => {
    const local = ['a', 'b', 'c', 'd', 'e'].map((name) => ({ name, search: '' }));
    const storage = storageOf(local);
    await carryOver('ana', [], MOST, create, storage);
    expect(localViews('ana', storage)).toEqual(local.slice(3));
    const refuse = (): Promise<View> => Promise.reject(new Error('no'));
    expect(await carryOver('ana', [], MOST, refuse, storage)).toEqual([]);
    expect(localViews('ana', storage)).toEqual(local.slice(3));
  });

  it('are passed over where they are none', () => {
    for (const odd of [
      '',
      'no JSON',
      '{}',
      'null',
      [null],
      [5],
      [{ name: 1, search: '' }],
      [{ name: ' ', search: '' }],
    ]) {
      expect(localViews('ana', storageOf(odd))).toEqual([]);
    }
    const long = [
      { name: '🧊'.repeat(100), search: 'x'.repeat(8_001) },
      { name: '🧊'.repeat(100), search: '' },
    ];
    expect(localViews('ana', storageOf(long))).toEqual([{ name: '🧊'.repeat(80), search: '' }]);
  });
});
