/** Figures of the server, as `/metrics` tells them. */
export type Metrics = ReadonlyMap<string, number>;

/** The sum of each metric over its labels; buckets of histograms and comments are left out. */
export function readMetrics(text: string): Metrics {
  const metrics = new Map<string, number>();
  for (const line of text.split('\n')) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})? (\S+)/.exec(line);
    const [, name = '', number = ''] = found ?? [];
    const value = Number(number);
    if (name === '' || name.endsWith('_bucket') || !Number.isFinite(value)) continue;
    metrics.set(name, (metrics.get(name) ?? 0) + value);
  }
  return metrics;
}
