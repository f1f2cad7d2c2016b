import { describe, expect, it } from 'vitest';
import { notAmong } from './usable';

const counted = (projectUuid: string, projectName: string | null) => ({ projectUuid, projectName, count: 2 });

describe('projects of organizations above', () => {
  it('are those that devices have and that are not listed', () => {
    const own = [{ id: 'p-2', name: 'Doors' }];
    const above = counted('p-1', 'Cold chain');
    expect(notAmong(own, [above, counted('p-2', 'Doors')])).toEqual([above]);
  });

  it('leave out what cannot be named', () => {
    expect(notAmong([], [counted('p-1', null)])).toEqual([]);
  });
});
