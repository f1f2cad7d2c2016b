import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');

describe('the first page', () => {
  it('has colours of the tokens alone', () => {
    const tokens = read('../styles/tokens.css');
    const colours = read('../../public/first.css').match(/light-dark\([^)]*\)/g) ?? [];
    expect(colours.length).toBeGreaterThan(0);
    for (const colour of colours) expect(tokens).toContain(colour);
  });

  it('has the logo that the console has', () => {
    const paths = read('../parts/Logo.svelte').match(/<path d="[^"]*"/g) ?? [];
    expect(paths.length).toBe(3);
    expect(read('../../index.html').match(/<path d="[^"]*"/g)).toEqual(paths);
  });
});
