import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { designers, node, open, panel } from './canvas';
import { fleet, visitor } from './stage';
import { ELEMENTS, largeDesign } from './trace/fill';

/** What may be added to the canvas between two paintings. */
const SLICE_MAX = 24;
const LINKS = 320;

designers();

/** Notes, frame by frame, how many elements have come onto the canvas. */
function countSlices(): void {
  const slices: number[] = [];
  Object.assign(window, { slices });
  let known = 0;
  const look = (): void => {
    const now = document.querySelectorAll('.svelte-flow__node').length;
    slices.push(now - known);
    known = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

const named = (page: Page, name: string) => node(page, encodeURIComponent(name));
const all = (page: Page) => page.locator('.svelte-flow__node');

/** The element that the keyboard stands on. */
const focused = (page: Page): Promise<string | null> =>
  page.evaluate(() => document.activeElement?.getAttribute('data-id') ?? null);

async function openLarge(page: Page): Promise<void> {
  await open(page, await fleet.project('Large', largeDesign()));
  await expect.poll(() => all(page).count()).toBe(ELEMENTS);
}

/** How many elements are within the canvas, be it by a corner. */
async function inView(page: Page): Promise<number> {
  const canvas = await page.getByRole('region', { name: 'Canvas' }).boundingBox();
  if (!canvas) throw new Error('there is no canvas');
  return all(page).evaluateAll((elements, { x, y, width, height }) => {
    const boxes = elements.map((element) => element.getBoundingClientRect());
    return boxes.filter((box) => box.right > x && box.left < x + width && box.bottom > y && box.top < y + height)
      .length;
  }, canvas);
}

describe('a design of hundreds of elements', () => {
  it('is drawn a slice at a time from where it begins, and all of it is there in the end', async () => {
    const { page } = visitor;
    await page.addInitScript(countSlices);
    await openLarge(page);
    const slices = (): Promise<number[]> => page.evaluate(() => (window as unknown as { slices: number[] }).slices);
    // The last slice is noted with the frame that comes after it.
    await expect.poll(async () => (await slices()).reduce((sum, count) => sum + count, 0)).toBe(ELEMENTS);
    expect(Math.max(...(await slices()))).toBeLessThanOrEqual(SLICE_MAX);
    await expect.poll(() => page.locator('.svelte-flow__edge').count()).toBe(LINKS);
    // What is seen of it can be read; the rest is a button away.
    expect(await inView(page)).toBeLessThan(ELEMENTS / 4);
    await page.getByRole('button', { name: 'Show everything' }).click();
    await expect.poll(() => inView(page)).toBe(ELEMENTS);
  });

  it('opens where it begins, and a click on its map goes elsewhere', async () => {
    const { page } = visitor;
    await openLarge(page);
    const canvas = await page.getByRole('region', { name: 'Canvas' }).boundingBox();
    const start = await named(page, 'reading 00').boundingBox();
    if (!canvas || !start) throw new Error('there is no canvas');
    expect(start.x).toBeGreaterThanOrEqual(canvas.x);
    expect(start.y + start.height).toBeLessThanOrEqual(canvas.y + canvas.height);
    const map = page.getByRole('img', { name: /^Map of the design/ });
    const seen = map.locator('rect');
    const before = Number(await seen.getAttribute('y'));
    const box = await map.boundingBox();
    if (!box) throw new Error('there is no map');
    await page.mouse.click(box.x + box.width / 2, box.y + box.height - 8);
    await expect.poll(async () => Number(await seen.getAttribute('y'))).toBeGreaterThan(before + 1_000);
    await expect.poll(async () => (await named(page, 'reading 00').boundingBox())?.y).toBeLessThan(0);
    await page.getByRole('button', { name: 'Show everything' }).click();
    await map.waitFor({ state: 'detached' });
  });

  it('has links that begin and end at the dots of their elements', async () => {
    const { page } = visitor;
    await openLarge(page);
    await expect.poll(() => page.locator('.svelte-flow__edge').count()).toBe(LINKS);
    const gaps = (): Promise<number[]> =>
      page.evaluate(() =>
        [...document.querySelectorAll<SVGPathElement>('.svelte-flow__edge-path')].flatMap((line) => {
          const screen = line.getScreenCTM();
          const length = line.getTotalLength();
          if (!screen) return [];
          const dots = [...document.querySelectorAll('.svelte-flow__handle')].map((dot) => dot.getBoundingClientRect());
          return [line.getPointAtLength(0), line.getPointAtLength(length)].map((end) => {
            const { x, y } = end.matrixTransform(screen);
            const away = dots.map(
              (dot) => Math.hypot(dot.x + dot.width / 2 - x, dot.y + dot.height / 2 - y) - dot.width / 2,
            );
            return Math.min(...away);
          });
        }),
      );
    expect(await gaps()).toHaveLength(2 * LINKS);
    // A line that is there may still be drawn to where its element was thought to end, until that is measured.
    await expect.poll(async () => Math.max(...(await gaps()))).toBeLessThan(1);
  });

  it('is worked on by keys, also where it is not in view', async () => {
    const { page } = visitor;
    await openLarge(page);
    // From the palette one comes to the elements, not to hundreds of links.
    await page.getByRole('navigation', { name: 'Elements' }).getByRole('button').last().focus();
    await page.keyboard.press('Tab');
    expect(decodeURIComponent((await focused(page)) ?? '')).toBe('reading 00');
    const before = await named(page, 'warm 79').boundingBox();
    expect(before?.y).toBeGreaterThan(850);
    await named(page, 'values 79').focus();
    await page.keyboard.press('Tab');
    expect(decodeURIComponent((await focused(page)) ?? '')).toBe('warm 79');
    await expect.poll(async () => (await named(page, 'warm 79').boundingBox())?.y).toBeLessThan(850);
    await page.keyboard.press('Enter');
    await panel(page).getByRole('heading', { name: 'Condition' }).waitFor();
    await page.keyboard.press('Delete');
    await named(page, 'warm 79').waitFor({ state: 'detached' });
    expect(await all(page).count()).toBe(ELEMENTS - 1);
    await expect.poll(async () => decodeURIComponent((await focused(page)) ?? '')).toBe('tell 79');
    await page.keyboard.press('Control+z');
    await named(page, 'warm 79').waitFor();
    await expect.poll(() => page.locator('.svelte-flow__edge').count()).toBe(LINKS);
  });

  it('is searched in its JSON, of which only a part is in the document', async () => {
    const { page } = visitor;
    await openLarge(page);
    await page.getByRole('button', { name: 'JSON', exact: true }).click();
    const text = page.getByRole('textbox', { name: 'The design as JSON' });
    await text.getByText('"reading 00"').first().waitFor();
    expect(await text.getByText('"tell 79": {').count()).toBe(0);
    await text.click();
    await page.keyboard.press('Control+f');
    await page.getByRole('textbox', { name: 'Find' }).pressSequentially('"tell 79": {');
    await page.keyboard.press('Enter');
    await text.getByText('"tell 79": {').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('textbox', { name: 'Find' }).waitFor({ state: 'detached' });
  });
});
