import { brotliCompressSync } from 'node:zlib';
import type { Request } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { Visitor } from './pages';
import { fleet, stage, visitor, withVisitor } from './stage';

const DEVICES = 10_000;
/** What signing in and the overview may weigh, answers and all, compressed. */
const WEIGHT_MAX = 190_000;
const SPREAD = 97;

stage(async () => {
  const project = await fleet.project('Cold rooms');
  const devices = Array.from({ length: DEVICES }, (_, index) => ({
    name: `Room ${index}`,
    projectUuid: project,
    // Over Europe, and the last two in one place of their own.
    meta:
      index < DEVICES - 2
        ? { latitude: 37 + ((index * 7) % SPREAD) / 5, longitude: -8 + ((index * 13) % SPREAD) / 3 + index / 1e5 }
        : { latitude: -33.9, longitude: 151.2 },
  }));
  await fleet.call('POST', '/devices/bulk', devices);
});
withVisitor((of, url) => Visitor.comeFirst(of, url));

describe('the places of a large fleet', () => {
  it('weigh little, with all that comes before them', async () => {
    const { page } = visitor;
    const finished: Request[] = [];
    const begun = new Set<Request>();
    page.on('request', (request) => begun.add(request));
    page.on('requestfinished', (request) => {
      finished.push(request);
      begun.delete(request);
    });
    await page.goto('/');
    await page.getByLabel('Username or e-mail').waitFor();
    await visitor.signIn();
    await page.getByRole('application', { name: /map/i }).locator('svg').waitFor();
    await page
      .getByRole('button', { name: /devices, most urgent: No status/ })
      .first()
      .waitFor();
    // A stream is never over.
    await expect.poll(() => [...begun].filter((request) => !request.url().includes('stream'))).toEqual([]);
    // What is asked again every few seconds is a matter of how long one stays.
    const first = finished.filter((one, place) => finished.findIndex((other) => other.url() === one.url()) === place);
    const responses = await Promise.all(first.map((request) => request.response()));
    const bodies = await Promise.all(responses.map(async (response) => (await response?.body()) ?? Buffer.alloc(0)));
    const weight = bodies.reduce((sum, body) => sum + Math.min(brotliCompressSync(body).length, body.length), 0);
    expect(weight).toBeLessThan(WEIGHT_MAX);
    expect(responses.filter((response) => response?.url().includes('/locations?'))).toEqual([]);
  });

  it('are listed where several are in one', async () => {
    const { page } = visitor;
    await visitor.signIn();
    await page.getByRole('button', { name: /^2 devices, most urgent/ }).click();
    const here = page.getByRole('region', { name: '2 devices at this place' });
    await here.getByRole('button', { name: /Room 9999/ }).click();
    await page.getByRole('heading', { level: 1, name: 'Room 9999' }).waitFor();
  });
});
