import { describe, expect, it } from 'vitest';
import type { Device } from './client';
import { count } from './summary';

const NOW = Date.parse('2026-03-10T12:00:00Z');

function device(more: Partial<Device>): Device {
  return { statusText: 'none', projectUuid: 'p', meta: {}, lastActive: null, ...more } as Device;
}

describe('a summary that is counted here', () => {
  it('has what the server’s would have', () => {
    const fleet = count(
      [
        device({ statusText: 'critical', lastActive: '2026-03-10T11:30:00Z', meta: { latitude: 1, longitude: 2 } }),
        device({ statusText: 'good', lastActive: '2026-03-09T13:00:00Z', projectUuid: 'q' }),
        device({ statusText: 'good', lastActive: '2026-03-04T12:00:00Z', meta: { latitude: 'x' } }),
        device({}),
      ],
      4,
      NOW,
    );
    expect(fleet.byStatus).toEqual({ none: 1, good: 2, info: 0, warning: 0, critical: 1, missing: 0 });
    expect(fleet.active).toEqual({ hour: 1, day: 2, week: 3, never: 1 });
    expect(fleet.byProject.map(({ projectUuid, count }) => [projectUuid, count])).toEqual([
      ['p', 3],
      ['q', 1],
    ]);
    expect(fleet).toMatchObject({ total: 4, located: 1 });
  });
});
