import type { Locator } from 'playwright-core';
import { beforeEach, describe, expect, it } from 'vitest';
import { node } from './canvas';
import { fleet, stage, takeAPhone, visitor, withVisitor } from './stage';

/** On a phone nothing may lie over what is looked at. */

let project: string;

stage(async () => {
  project = await fleet.project('Cold chain');
  for (const [index, longitude] of [-8, 3, 14, 25].entries())
    await fleet.device(`Room ${index}`, project, { meta: { latitude: 40 + 5 * index, longitude } });
});
withVisitor();
beforeEach(takeAPhone);

/** Whether two things share a place on the screen. */
async function overlap(one: Locator, other: Locator): Promise<boolean> {
  const [a, b] = [await one.boundingBox(), await other.boundingBox()];
  if (!a || !b) throw new Error('one of them is not to be seen');
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

describe('on a phone', () => {
  it('the buttons that zoom a design lie over none of it', async () => {
    const { page } = visitor;
    await visitor.open(`/projects/${project}/design`);
    await node(page, 'warm').waitFor();
    const all = page.getByRole('button', { name: 'Show everything' });
    expect(await overlap(page.locator('.svelte-flow'), all)).toBe(false);
    await all.tap();
    for (const element of await page.locator('.svelte-flow__node').all())
      await expect.poll(() => overlap(element, all)).toBe(false);
  });

  it('an element that is added is in view, and no tool is beyond a narrow screen', async () => {
    const { page } = visitor;
    await page.setViewportSize({ width: 360, height: 740 });
    await visitor.open(`/projects/${project}/design`);
    await node(page, 'warm').waitFor();
    const tools = await page.getByRole('link', { name: 'Versions' }).boundingBox();
    expect((tools?.x ?? 0) + (tools?.width ?? 0)).toBeLessThanOrEqual(352);
    await page.getByRole('button', { name: 'Elements', exact: true }).tap();
    await page.getByRole('button', { name: 'Add Storage' }).tap();
    await page.getByRole('button', { name: 'Canvas', exact: true }).tap();
    const frame = page.locator('.svelte-flow');
    await expect.poll(() => overlap(node(page, 'values'), frame)).toBe(true);
  });

  it('the name of each device is seen in the list', async () => {
    const { page } = visitor;
    await visitor.open('/devices');
    for (const name of ['Room 0', 'Room 3']) await page.getByRole('link', { name, exact: true }).waitFor();
  });

  it('the buttons that zoom a map lie over none of it', async () => {
    const { page } = visitor;
    await visitor.open('/');
    const map = page.getByRole('application', { name: /Map of the devices/ });
    await map.scrollIntoViewIfNeeded();
    await page.locator('[data-mark]').first().waitFor();
    const buttons = page.getByRole('group', { name: 'Zoom' });
    expect(await overlap(map, buttons)).toBe(false);
    await buttons.getByRole('button', { name: 'Zoom in' }).tap();
    expect(await overlap(map, buttons)).toBe(false);
  });
});
