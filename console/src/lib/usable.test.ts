import { describe, expect, it } from 'vitest';
import { notAmong, usable } from './usable';

const counted = (projectUuid: string, projectName: string | null) => ({ projectUuid, projectName, count: 2 });

describe('projects of use', () => {
  it('are the own ones, and those above that devices have', () => {
    const own = [{ id: 'p-2', name: 'Doors' }];
    expect(usable(own, [counted('p-1', 'Cold chain'), counted('p-2', 'Doors')])).toEqual([
      { id: 'p-1', name: 'Cold chain' },
      { id: 'p-2', name: 'Doors' },
    ]);
    expect(usable([], [counted('p-1', 'Cold chain')])).toEqual([{ id: 'p-1', name: 'Cold chain' }]);
  });

  it('leave out what cannot be named', () => {
    expect(notAmong([], [counted('p-1', null)])).toEqual([]);
  });
});
