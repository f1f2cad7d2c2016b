import { describe, expect, it } from 'vitest';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';

const HOUR_MS = 3_600_000;

let device: { id: string; token: string };

stage(async () => {
  const project = await fleet.project('Cold chain');
  device = await fleet.device('Cold room', project);
  await fleet.event(device.token, { temperature: 4 });
});
withVisitor();

const address = (): URLSearchParams => new URL(visitor.page.url()).searchParams;

/** The range in the address. */
function span(): { from: number; to: number } {
  return { from: Date.parse(address().get('from') ?? ''), to: Date.parse(address().get('to') ?? '') };
}

/** Puts two fingers onto the chart, at parts of its width, moves them, and takes them away. */
async function touch(from: [number, number], to: [number, number]): Promise<void> {
  const { page } = visitor;
  const plot = page.locator('.u-over');
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  if (!box) throw new Error('there is no plot');
  const session = await page.context().newCDPSession(page);
  const points = (parts: number[]) =>
    parts.map((part, id) => ({ x: box.x + part * box.width, y: box.y + box.height / 2, id }));
  await session.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: points(from) });
  for (const done of [0.25, 0.5, 0.75, 1]) {
    const parts = from.map((part, index) => part + ((to[index] ?? 0) - part) * done);
    await session.send('Input.dispatchTouchEvent', { type: 'touchMove', touchPoints: points(parts) });
  }
  await session.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
}

describe('two fingers on a chart', () => {
  it('zoom into what is between them, and move it', async () => {
    await takeAPhone();
    const { page } = visitor;
    const to = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
    const query = new URLSearchParams({
      keys: 'climate/temperature',
      from: new Date(to - 8 * HOUR_MS).toISOString(),
      to: new Date(to).toISOString(),
    });
    await visitor.open(`/devices/${device.id}/charts?${query}`);
    await page.locator('.u-over').waitFor();
    const asked = new Set<string | null>();
    page.on('request', (request) => {
      const { pathname, searchParams } = new URL(request.url());
      if (pathname.endsWith('/buckets')) asked.add(searchParams.get('from'));
    });
    // What is from one quarter to three quarters fills all of it: half the range, around the same middle.
    await touch([0.25, 0.75], [0, 1]);
    await expect.poll(() => span().to - span().from).toBeLessThan(4.2 * HOUR_MS);
    const zoomed = span();
    expect(zoomed.to - zoomed.from).toBeGreaterThan(3.8 * HOUR_MS);
    expect(Math.abs((zoomed.from + zoomed.to) / 2 - (to - 4 * HOUR_MS))).toBeLessThan(0.2 * HOUR_MS);
    // By a quarter of the width to the right: what was an hour before comes into view.
    await touch([0.3, 0.5], [0.55, 0.75]);
    // The browser tells of one finger after the other: in between it looks as if they drew nearer.
    const isMoved = ({ from, to }: { from: number; to: number }) =>
      Math.abs(zoomed.from - from - HOUR_MS) < 0.2 * HOUR_MS && Math.abs(zoomed.to - to - HOUR_MS) < 0.2 * HOUR_MS;
    await expect.poll(() => isMoved(span())).toBe(true);
    // Nothing was asked for the ranges in between.
    await expect.poll(() => asked.size).toBe(2);
    // The page itself is as large as it was.
    expect(await page.evaluate(() => visualViewport?.scale)).toBe(1);
  });
});
