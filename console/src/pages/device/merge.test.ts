import { describe, expect, it } from 'vitest';
import type { StoredEvent } from '../../api/client';
import { merge } from './merge';

const event = (id: string) => ({ id }) as StoredEvent;
const ids = (events: readonly StoredEvent[]) => events.map(({ id }) => id);

describe('history and live events', () => {
  it('come together, newest first, each once', () => {
    expect(ids(merge([event('3'), event('1')], [event('2'), event('3'), event('4')]))).toEqual(['4', '3', '2', '1']);
  });
});
