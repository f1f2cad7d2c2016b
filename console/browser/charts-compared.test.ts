import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { fleet, stage, visitor, withVisitor } from './stage';

/** Charts that show two ranges, or values of two sizes. */

const HOUR_MS = 3_600_000;
const PLAIN = {
  reading: { type: 'deviceEvent', triggers: { eventReceived: [{ element: 'climate', ability: 'store' }] } },
  climate: { type: 'storage' },
};

let device: { id: string; token: string };

stage(async () => {
  device = await fleet.device('Boiler', await fleet.project('Plant', PLAIN));
  const now = Date.now();
  for (const [ago, temperature] of [
    [1.6, 40],
    [1.5, 41],
    [0.6, 60],
    [0.5, 61],
  ] as const)
    await fleet.event(device.token, { at: now - ago * HOUR_MS, temperature, pressure: 101_300 + temperature });
});
withVisitor();

const legend = (): Locator => visitor.page.locator('.legend');
const colours = (): Promise<number> =>
  visitor.page.locator('.plots canvas').evaluate((canvas) => {
    const picture = canvas as HTMLCanvasElement;
    const { data } = picture.getContext('2d')?.getImageData(0, 0, picture.width, picture.height) ?? { data: [] };
    let inked = 0;
    for (let at = 3; at < data.length; at += 4) inked += Number((data[at] ?? 0) > 0);
    return inked;
  });

describe('a chart', () => {
  it('shows the previous period beside, drawn lighter, and reads both', async () => {
    const { page } = visitor;
    await visitor.open(`/devices/${device.id}/charts?keys=climate/temperature&range=hour&live=off&time=at`);
    await legend().getByText('61', { exact: true }).waitFor();
    const alone = await colours();
    await page.getByRole('button', { name: 'Previous period' }).click();
    await legend().getByText('before: 41').waitFor();
    expect(new URL(page.url()).searchParams.get('before')).toBe('on');
    await expect.poll(colours).not.toBe(alone);
    const chart = page.getByRole('slider');
    await chart.focus();
    await page.keyboard.press('Home');
    expect(await chart.getAttribute('aria-valuetext')).toContain('(before: 40)');
    await page.getByRole('button', { name: 'Previous period' }).click();
    await legend().getByText('before: 41').waitFor({ state: 'detached' });
  });

  it('gives lines of another size a scale of their own', async () => {
    const { page } = visitor;
    const path = `/devices/${device.id}/charts?range=hour&live=off&time=at&keys=climate/temperature`;
    await visitor.open(`${path},climate/pressure`);
    await legend().getByRole('listitem').filter({ hasText: 'pressure' }).getByText('right-hand scale').waitFor();
    expect(await legend().getByText('right-hand scale').count()).toBe(1);
    await expect.poll(() => page.locator('.plots .u-axis').count()).toBe(3);
    await page.goto(path);
    await legend().getByText('61', { exact: true }).waitFor();
    expect(await page.locator('.plots .u-axis').count()).toBe(2);
  });
});
