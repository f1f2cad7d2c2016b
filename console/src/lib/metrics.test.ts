import { describe, expect, it } from 'vitest';
import { readMetrics } from './metrics';

describe('figures of the server', () => {
  it('are summed up over their labels', () => {
    const metrics = readMetrics(
      [
        '# HELP isobar_events_accepted_total Device events accepted, durably',
        '# TYPE isobar_events_accepted_total counter',
        'isobar_events_accepted_total 12',
        '',
        'isobar_worker_restarts_total{worker="timers"} 1',
        'isobar_worker_restarts_total{worker="calls",why="a b"} 2',
        'isobar_http_request_duration_seconds_bucket{le="+Inf"} 7',
        'isobar_http_request_duration_seconds_sum{route="/v2/devices"} 0.5',
        'isobar_odd NaN',
      ].join('\n'),
    );
    expect([...metrics]).toEqual([
      ['isobar_events_accepted_total', 12],
      ['isobar_worker_restarts_total', 3],
      ['isobar_http_request_duration_seconds_sum', 0.5],
    ]);
  });
});
