import type { Locator } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { designers, elements, node, open, panel, save, saved } from './canvas';
import { fleet, visitor } from './stage';

/** What the canvas, the code and a dry run have of the window. */
const SMALL = { width: 1366, height: 768 };
const CODE = 'function decodeUplink(input) { return { data: { first: input.bytes[0] } }; }';

designers();

async function boxOf(of: Locator): Promise<{ x: number; y: number; width: number; height: number }> {
  const box = await of.boundingBox();
  if (!box) throw new Error('it is not to be seen');
  return box;
}

describe('on a small screen', () => {
  it('a dry run is begun without scrolling, and its result cleared', async () => {
    const { page } = visitor;
    await page.setViewportSize(SMALL);
    await open(page, await fleet.project('Tried'));
    await page.getByRole('button', { name: 'Try it out' }).click();
    const run = page.getByRole('button', { name: 'Run', exact: true });
    const { y, height } = await boxOf(run);
    expect(y + height).toBeLessThanOrEqual(SMALL.height);
    // Nothing lies over it.
    await run.click({ trial: true });
    await run.click();
    await page.getByRole('list', { name: 'Steps' }).waitFor();
    await page.getByRole('button', { name: 'Clear the result' }).click();
    await page.getByRole('list', { name: 'Steps' }).waitFor({ state: 'detached' });
  });

  it('code is written in the whole window, and goes on in its place', async () => {
    const { page } = visitor;
    await page.setViewportSize(SMALL);
    await open(page, await fleet.project('Coded', { decode: { type: 'function', properties: { code: CODE } } }));
    await node(page, 'decode').click();
    const editor = panel(page).getByRole('textbox', { name: /^Code/ });
    await editor.waitFor();
    const before = await boxOf(panel(page).locator('.code'));
    await panel(page).getByRole('button', { name: 'Enlarge the editor' }).click();
    const large = page.getByRole('dialog', { name: /^Code/ });
    const { width, height } = await boxOf(large);
    expect(width).toBeGreaterThan(SMALL.width * 0.9);
    expect(height).toBeGreaterThan(SMALL.height * 0.8);
    await page.keyboard.press('Control+Home');
    await page.keyboard.insertText('// mine\n');
    await page.keyboard.press('Escape');
    await large.waitFor({ state: 'detached' });
    expect(await boxOf(panel(page).locator('.code'))).toMatchObject({ x: before.x, width: before.width });
    await editor.getByText('// mine').waitFor();
    // What was typed there is taken back here.
    await editor.press('Control+z');
    await expect.poll(() => editor.getByText('// mine').count()).toBe(0);
  });

  it('what stands beside the canvas gives it its room', async () => {
    const { page } = visitor;
    await page.setViewportSize(SMALL);
    await open(page, await fleet.project('Folded'));
    const canvas = page.getByRole('region', { name: 'Canvas' });
    await panel(page).waitFor();
    const before = await boxOf(canvas);
    for (const [fold, part] of [
      ['Show or hide the elements', page.getByRole('navigation', { name: 'Elements' })],
      ['Show or hide the properties', panel(page)],
    ] as const) {
      await page.getByRole('button', { name: fold }).click();
      await expect.poll(() => part.isVisible()).toBe(false);
    }
    const after = await boxOf(canvas);
    expect(after.width).toBeGreaterThan(before.width + 400);
    await page.getByRole('button', { name: 'Show or hide the properties' }).click();
    await expect.poll(() => panel(page).isVisible()).toBe(true);
  });

  it('a design whose corner is empty is opened where it has elements', async () => {
    const { page } = visitor;
    await page.setViewportSize(SMALL);
    // From the lower left to the upper right, and far apart.
    const scattered = Object.fromEntries(
      Array.from({ length: 30 }, (_, step) => [
        `step ${step}`,
        { type: 'storage', position: { x: step * 900, y: (30 - step) * 900 } },
      ]),
    );
    await open(page, await fleet.project('Diagonal', scattered));
    await expect.poll(() => page.locator('.svelte-flow__node').count()).toBe(30);
    const { x, y, width, height } = await boxOf(page.getByRole('region', { name: 'Canvas' }));
    const inView = (): Promise<number> =>
      page.locator('.svelte-flow__node').evaluateAll(
        (nodes, [left = 0, top = 0, right = 0, bottom = 0]) =>
          nodes.filter((one) => {
            const box = one.getBoundingClientRect();
            return box.right > left && box.left < right && box.bottom > top && box.top < bottom;
          }).length,
        [x, y, x + width, y + height],
      );
    await expect.poll(inView).toBeGreaterThan(0);
  });
});

describe('a design as a file', () => {
  it('is exported, and imported into another project, where it waits to be saved', async () => {
    const { page } = visitor;
    await open(page, await fleet.project('First'));
    await page.getByRole('button', { name: 'Export or import' }).click();
    const coming = page.waitForEvent('download');
    await page.getByRole('menuitem', { name: 'Export as a file' }).click();
    const file = await coming;
    expect(file.suggestedFilename()).toBe('First.json');
    const path = await file.path();
    const second = await fleet.project('Second', {});
    await open(page, second);
    const pick = async (content: string | { name: string; mimeType: string; buffer: Buffer }): Promise<void> => {
      await page.getByRole('button', { name: 'Export or import' }).click();
      const asked = page.waitForEvent('filechooser');
      await page.getByRole('menuitem', { name: 'Import from a file' }).click();
      await (await asked).setFiles(content);
    };
    await pick({ name: 'table.csv', mimeType: 'text/csv', buffer: Buffer.from('a,b') });
    await page.getByText('table.csv contains no design').waitFor();
    await pick(path);
    await node(page, 'warm').waitFor();
    await page.getByText('Unsaved changes').waitFor();
    expect(await elements(second)).toEqual({});
    await save(page).click();
    await saved(page);
    expect(Object.keys(await elements(second))).toContain('warm');
  });
});
